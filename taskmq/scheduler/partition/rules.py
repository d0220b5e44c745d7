"""The app's rules about its tasks and queues, as far as a scheduler follows them."""

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
        """Policies of queues, as the app describes them."""

    def queue(self, name: str) -> WorkQueue:
        """Return the queue of a name.

        Raises:
            InvalidOption: its name is not allowed; a version with other rules has submitted to it.
        """
        return self._producer.queue(name)

    def is_placed(self, queue: str) -> bool:
        """Whether jobs of the queue are placed on nodes; False for a name that is not allowed."""
        try:
            return self._producer.queue(queue).placed
        except InvalidOption:
            # The publisher pauses the queue, and says why.
            return False

    def runs_once(self, task: str) -> bool:
        """Whether jobs of the task never run a second time."""
        plan = self._tasks.plan_of(task)
        return plan is not None and plan.ack == "early"

    def gives_way(self, job: DispatchedJob) -> bool:
        """Whether a run of the job may be stopped for others: its submitter has said so, or else its task does.

        Whatever a job says, one that is acknowledged before its run is never stopped.
        """
        plan = self._tasks.plan_of(job.task)
        if plan is not None and plan.ack == "early":
            return False
        own = _submitted_as(job.body)
        return own if own is not None else plan is not None and plan.preemptible

    def demands(self) -> TaskDemands:
        """Return the limits that jobs of the app's tasks have to keep."""
        return TaskDemands(self._tasks.by_name.values())


def _submitted_as(body: bytes) -> bool | None:
    # Nearly no job says anything, and a look at the bytes costs little.
    if _PREEMPTIBLE not in body:
        return None
    try:
        return decode_envelope(body).preemptible
    except MalformedMessage:
        return None
