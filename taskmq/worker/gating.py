"""Which gates a worker has."""

from taskmq.app import TaskMQ
from taskmq.worker.gates import Gate, Gates

__all__ = ["gates_for"]


def gates_for(app: TaskMQ, *, worker: str) -> Gates:
    """The gates of one worker, in the order in which they are passed."""
    gates: list[Gate] = []
    return Gates(gates)
