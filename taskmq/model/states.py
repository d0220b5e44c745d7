"""The states of a job, and the one table of what may follow what.

A job starts `scheduled` (its time has not come) or `queued`, and ends in exactly one of `succeeded`, `dead`
and `cancelled`. Terminal states are sticky, with one exception that an operator asks for: a `dead` job that
is replayed is `queued` again.
"""

from enum import StrEnum

__all__ = ["TERMINAL", "TRANSITIONS", "JobState", "can_follow"]


class JobState(StrEnum):
    """How far a job has come."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether a job ends in it."""
        return self in TERMINAL


TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.SCHEDULED: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED, JobState.DEAD}),
    JobState.RUNNING: frozenset(
        {
            JobState.SUCCEEDED,
            JobState.RETRYING,
            JobState.SCHEDULED,
            JobState.QUEUED,
            JobState.DEAD,
            JobState.CANCELLED,
        }
    ),
    JobState.RETRYING: frozenset({JobState.QUEUED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.DEAD: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset(),
}

TERMINAL = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED})


def can_follow(before: JobState, after: JobState) -> bool:
    """Whether a job may go from `before` to `after` in one step."""
    return after in TRANSITIONS[before]
