"""The states of a job, and the one table of what may follow what. Every store obeys it.

A job starts `scheduled` (its time has not come) or `queued`, and ends in exactly one of `succeeded`, `failed` and
`cancelled`. An end is final unless somebody asks for the job once more: a `failed` one that is replayed, and a
`cancelled` one that is sent again under its id, is `queued` again. A success is never followed by anything.
"""

from enum import StrEnum
from typing import Self

__all__ = ["TERMINAL", "TRANSITIONS", "Cancellation", "JobState", "can_follow"]


class JobState(StrEnum):
    """How far a job has come.

    `dead`, which `failed` was called up to 0.2, is read as `failed`: in stored records, in filters, and as the member
    `JobState.DEAD`.
    """

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """Nobody knows the job: said of an id, and never the state of a job."""

    DEAD = FAILED

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls("failed") if value == "dead" else None

    @property
    def is_final(self) -> bool:
        """Whether a job ends in it."""
        return self in TERMINAL

    @property
    def is_sticky(self) -> bool:
        """Whether nothing may follow it, so that no store replaces its record by another one."""
        return self in TERMINAL and not TRANSITIONS[self]


class Cancellation(StrEnum):
    """What became of the wish to cancel a job. True where the job will not be done."""

    CANCELLED = "cancelled"
    """It waited for its time in the state, and was taken away."""
    REQUESTED = "requested"
    """It is stopped where it runs, or ended without a run where it comes up; it may end by itself in the moment."""
    ENDED = "ended"
    """It has ended before."""
    UNKNOWN = "unknown"
    """The state knows no such job. One that waits at the broker, or runs and tells nothing, is ended even so."""

    def __bool__(self) -> bool:
        return self in (Cancellation.CANCELLED, Cancellation.REQUESTED)


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.SCHEDULED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.FAILED}),
    JobState.RUNNING: frozenset(
        {
            JobState.SUCCEEDED,
            JobState.RETRYING,
            JobState.SCHEDULED,
            JobState.QUEUED,
            JobState.FAILED,
            JobState.CANCELLED,
        }
    ),
    JobState.RETRYING: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
    JobState.UNKNOWN: frozenset(),
}

TERMINAL = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


def can_follow(before: JobState, after: JobState) -> bool:
    """Whether a job may go from `before` to `after` in one step."""
    return after in TRANSITIONS[before]
