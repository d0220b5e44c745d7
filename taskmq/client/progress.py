"""The progress of a job, as read outside its run. Pure."""

from datetime import datetime

import msgspec

from taskmq.contracts.stores import ProgressRecord
from taskmq.model.states import JobState
from taskmq.model.units import to_datetime


class JobProgress(msgspec.Struct, frozen=True):
    """The last progress report of a job's task.

    Attributes:
        done: the completed amount, in the task's own unit.
        total: the total amount; None if the task does not know it.
        note: a short text for people.
        attempt: the attempt that reported.
        updated: the time of the report or heartbeat, UTC, by the worker's clock.
        state: `running`, or the state after that run.
    """

    done: float
    total: float | None
    note: str
    attempt: int
    updated: datetime
    state: JobState = JobState.RUNNING

    @property
    def fraction(self) -> float | None:
        """The completed fraction from 0 to 1; None if the total is unknown or not above 0."""
        if self.total is None or self.total <= 0:
            return None
        return min(max(self.done / self.total, 0.0), 1.0)


def progress_of(record: ProgressRecord) -> JobProgress:
    """Convert a store's record to the public value."""
    return JobProgress(
        done=record.done,
        total=record.total,
        note=record.note,
        attempt=record.attempt,
        updated=to_datetime(record.updated),
        state=record.state,
    )
