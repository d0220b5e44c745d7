"""Outcomes of jobs."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar, cast

from taskmq.errors import TaskMQError
from taskmq.model.states import JobState
from taskmq.model.values.return_type import ReturnType

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class JobOutcome(Generic[R_co]):
    """Outcome of a job: its final state, its result or error, and its last run.

    Attributes:
        state: `succeeded`, `failed` or `cancelled`; None if it is no longer kept.
        attempts: number of runs.
        started, finished: times of the last run, by its worker's clock; `started` is None if the job never ran.
        worker: the worker that ended it; empty if none did.
        error: the error that `result` raises; None after a success.
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
        """Return what the task returned; None if its worker reported no result.

        Raises:
            TaskFailed: the job failed; carries the task's error as data.
            JobCancelled: the job was cancelled or has expired.
            ResultExpired, ResultDamaged: the result is no longer available.
            EncodeError: the value does not fit the task's return type.
        """
        if self.error is not None:
            raise self.error
        assert self._returns is not None
        if not self._value:
            # The task keeps no results, or the worker reported none; every real value has an encoding.
            return cast("R_co", None)
        return cast("R_co", self._returns.decode(self._value, self._content_type))
