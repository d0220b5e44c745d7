"""How a job ended, as its sender sees it."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar, cast

from taskmq.errors import TaskMQError
from taskmq.model.codec import ReturnType
from taskmq.model.states import JobState

__all__ = ["JobOutcome"]

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class JobOutcome(Generic[R_co]):
    """How a job ended, and what it came to.

    Attributes:
        state: succeeded, failed or cancelled; None where that is not kept any more.
        attempts: how many runs it took.
        started, finished: the last run, by its worker's clock; `started` is None for a job that was never run.
        worker: that ended it; empty where none did.
        error: what `result` raises; None after a success.
    """

    job_id: str
    state: JobState | None
    error: TaskMQError | None = None
    attempts: int = 0
    started: datetime | None = None
    finished: datetime | None = None
    worker: str = ""
    _value: bytes = field(default=b"", repr=False)
    _content_type: str = field(default="", repr=False)
    _returns: ReturnType | None = field(default=None, repr=False)

    def result(self) -> R_co:
        """Return what the task returned; None where its worker has reported no result.

        Raises:
            TaskFailed: the job has failed; carries the task's error as data.
            JobCancelled: the job was cancelled or has expired.
            ResultExpired, ResultDamaged: its result is not there any more.
            EncodeError: the value does not fit the task's return type.
        """
        if self.error is not None:
            raise self.error
        assert self._returns is not None
        if not self._value:
            # Its task keeps no results, or its worker reported none: no value is encoded as nothing.
            return cast("R_co", None)
        return cast("R_co", self._returns.decode(self._value, self._content_type))
