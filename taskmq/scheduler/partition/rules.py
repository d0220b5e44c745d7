"""The app's rules about its tasks and queues that a scheduler applies."""

from collections.abc import Mapping
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import DispatchedJob, JobRecord
from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.model.jobs.pools import QueuePolicy
from taskmq.model.topology import WorkQueue
from taskmq.options.limits import Concurrency, RateLimit
from taskmq.scheduler.gates import TaskClaims, TaskDemands

_ONCE: Final = b'"once":'
_PREEMPTIBLE: Final = b'"preemptible":'


class AppRules:
    """Rules of one app.

    Args:
        has_state: whether the guards of workers decide limits finally, with the app's state.
    """

    def __init__(self, app: TaskMQ, *, has_state: bool = True) -> None:
        self._tasks = app.tasks
        self._producer = app.producer
        self._has_state = has_state
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

    def runs_once(self, job: DispatchedJob | JobRecord) -> bool:
        """Whether the job never runs a second time, by its submitter or its task."""
        plan = self._tasks.plan_of(job.task)
        if plan is not None and plan.ack == "early":
            return True
        envelope = _read_marked(job.body, _ONCE)
        return envelope is not None and envelope.run is not None and envelope.run.once

    def is_plain(self, task: str) -> bool:
        """Whether jobs of the task never wait for anything but a slot once they are at a worker."""
        plan = self._tasks.plan_of(task)
        return (
            plan is not None
            and plan.ack == "late"
            and plan.needs is None
            and not plan.limits
            and plan.order_key is None
            and plan.idempotency.maker is None
        )

    def gives_way(self, job: DispatchedJob) -> bool:
        """Whether a run of the job may be stopped for others, by its submitter or else by its task.

        A job that is acknowledged before its run is never stopped.
        """
        envelope = _read_marked(job.body, _PREEMPTIBLE)
        plan = self._tasks.plan_of(job.task)
        is_preemptible = plan is not None and plan.preemptible
        if envelope is not None and envelope.preemptible is not None:
            is_preemptible = envelope.preemptible
        # Few jobs are preemptible, so the body is rarely searched a second time.
        return is_preemptible and not self.runs_once(job)

    def leaves_limits(self, task: str) -> bool:
        """Whether jobs of the task hold no concurrency limits here: a state decides them, or none is known."""
        plan = self._tasks.plan_of(task)
        return self._has_state or plan is None or not any(isinstance(each, Concurrency) for each in plan.limits)

    def demands(self) -> TaskDemands:
        """Return the limits of the app's tasks that gates apply."""
        return TaskDemands(
            self._tasks.by_name.values(), is_final=not self._has_state, only=None if self._has_state else RateLimit
        )

    def claims(self) -> TaskClaims:
        """Return the claims of the app's jobs that the store decides."""
        return TaskClaims(self._tasks.by_name, has_state=self._has_state)


def _read_marked(body: bytes, mark: bytes) -> Envelope | None:
    """Return the body's envelope; None unless the body contains the mark, which few do."""
    if mark not in body:
        return None
    try:
        return decode_envelope(body)
    except MalformedMessage:
        return None
