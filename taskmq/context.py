"""What a running task can know about its own run."""

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from taskmq.envelope import Envelope

__all__ = ["SCHEDULED_FOR", "SCHEDULE_NAME", "Context", "current_context"]

SCHEDULE_NAME: Final = "taskmq.schedule"
SCHEDULED_FOR: Final = "taskmq.scheduled_for"
"""Keys of an envelope's `meta` that beat fills in: the schedule's name, and its nominal instant in ms."""

_NO_META: Mapping[str, str] = MappingProxyType({})


class Context:
    """One attempt of one job. Injected into a task's parameter that is annotated with this class.

    Attributes:
        job_id: the same in every attempt.
        task: the task's name.
        attempt: from 1.
        max_attempts: as the task's retry policy says; 1 without one.
        queue: the queue, as people name it.
        redelivered: whether the message may have been in another worker's hands before.
    """

    __slots__ = ("_cancelled", "_deadline", "_envelope", "attempt", "job_id", "max_attempts", "queue", "redelivered",
                 "task")  # fmt: skip

    def __init__(
        self,
        envelope: Envelope,
        *,
        job_id: str,
        max_attempts: int,
        queue: str,
        redelivered: bool,
        deadline: float | None,
    ) -> None:
        self._envelope = envelope
        self._deadline = deadline
        self._cancelled = False
        self.job_id: str = job_id
        self.task: str = envelope.task
        self.attempt: int = envelope.attempt
        self.max_attempts: int = max_attempts
        self.queue: str = queue
        self.redelivered: bool = redelivered

    @classmethod
    def detached(cls, task: str) -> "Context":
        """For calling a task as the plain function that it is, outside of a worker."""
        return cls(Envelope(task=task), job_id="", max_attempts=1, queue="", redelivered=False, deadline=None)

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def deadline(self) -> datetime | None:
        """When the task's `timeout` ends, UTC; None without one."""
        return None if self._deadline is None else datetime.fromtimestamp(self._deadline, UTC)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this run any more: a thread should look at it now and then, and return."""
        return self._cancelled

    def mark_cancelled(self) -> None:
        """Called by the worker when the run is given up."""
        self._cancelled = True

    @property
    def tenant(self) -> str | None:
        return self._envelope.tenant

    @property
    def order_key(self) -> str | None:
        """What the job is ordered by; None outside of ordered queues."""
        return self._envelope.order_key

    @property
    def meta(self) -> Mapping[str, str]:
        return self._envelope.meta or _NO_META

    @property
    def root(self) -> str:
        """The id of the job that this one descends from; its own id when nobody sent it from a task."""
        return self._envelope.root or self.job_id

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that emitted this job, if one did."""
        return self.meta.get(SCHEDULE_NAME)

    @property
    def scheduled_for(self) -> datetime | None:
        """The nominal instant of that schedule, UTC, however late the job runs."""
        instant = self.meta.get(SCHEDULED_FOR)
        return None if instant is None else datetime.fromtimestamp(int(instant) / 1000, UTC)

    def __repr__(self) -> str:
        return f"<Context {self.task} job={self.job_id} attempt={self.attempt}/{self.max_attempts}>"


current_context: ContextVar[Context | None] = ContextVar("taskmq_context", default=None)
"""The run that is going on here: what a task sends from inside carries its job id as `parent`."""
