"""The app's rules about its tasks and queues that a scheduler applies."""

from collections.abc import Mapping
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import DispatchedJob
from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.model.envelope import decode_envelope
from taskmq.model.jobs.pools import QueuePolicy
from taskmq.model.topology import WorkQueue
from taskmq.scheduler.gates import TaskDemands

__all__ = ["AppRules"]

_PREEMPTIBLE: Final = b'"preemptible":'


class AppRules:
    """Rules of one app."""

    def __init__(self, app: TaskMQ) -> None:
        self._tasks = app.tasks
        self._producer = app.producer
        self.policies: Mapping[str, QueuePolicy] = app.producer.policies()
        """Policies of queues, as the app defines them."""

    def queue(self, name: str) -> WorkQueue:
        """Return the queue of a name.

        Raises:
            InvalidOption: the name is invalid; a version with other rules has submitted to it.
        """
        return self._producer.queue(name)

    def is_placed(self, queue: str) -> bool:
        """Whether jobs of the queue are placed on nodes; False for an invalid name."""
        try:
            return self._producer.queue(queue).placed
        except InvalidOption:
            # The publisher pauses the queue and logs the reason.
            return False

    def runs_once(self, task: str) -> bool:
        """Whether jobs of the task never run a second time."""
        plan = self._tasks.plan_of(task)
        return plan is not None and plan.ack == "early"

    def gives_way(self, job: DispatchedJob) -> bool:
        """Whether a run of the job may be stopped for others, by its submitter or else by its task.

        A job that is acknowledged before its run is never stopped.
        """
        plan = self._tasks.plan_of(job.task)
        if plan is not None and plan.ack == "early":
            return False
        own = _read_preemptible(job.body)
        return own if own is not None else plan is not None and plan.preemptible

    def demands(self) -> TaskDemands:
        """Return the limits of the app's tasks."""
        return TaskDemands(self._tasks.by_name.values())


def _read_preemptible(body: bytes) -> bool | None:
    # Few jobs set this, and searching the bytes is cheap.
    if _PREEMPTIBLE not in body:
        return None
    try:
        return decode_envelope(body).preemptible
    except MalformedMessage:
        return None
