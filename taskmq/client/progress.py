"""How far a job is, as callers outside of its run read it. Pure."""

from datetime import datetime

import msgspec

from taskmq.contracts.stores import ProgressRecord
from taskmq.model.states import JobState
from taskmq.model.units import to_datetime

__all__ = ["JobProgress", "progress_of"]


class JobProgress(msgspec.Struct, frozen=True):
    """The last progress that a job's task has reported.

    Attributes:
        done: how much is done, in the task's own unit.
        total: of how much; None when the task does not know.
        note: a few words for people.
        attempt: the attempt that reported it.
        updated: when, UTC, by its worker's clock; a heartbeat counts as well.
        state: `running`, or what that run came to.
    """

    done: float
    total: float | None
    note: str
    attempt: int
    updated: datetime
    state: JobState = JobState.RUNNING

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None where the task knows no total, or one that is not above 0."""
        if self.total is None or self.total <= 0:
            return None
        return min(max(self.done / self.total, 0.0), 1.0)


def progress_of(record: ProgressRecord) -> JobProgress:
    """A store's record as what people get."""
    return JobProgress(
        done=record.done,
        total=record.total,
        note=record.note,
        attempt=record.attempt,
        updated=to_datetime(record.updated),
        state=record.state,
    )
