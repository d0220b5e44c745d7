"""The states of a job, and the one table of what may follow what. Every store obeys it.

    waiting -> scheduled -> queued -> dispatched -> running -> succeeded | failed | cancelled | expired
    |          |            |         `-----------> retrying, scheduled (snoozed) or queued again
    `--------> held <-------'

A job that is sent starts `scheduled` (its time has not come) or `queued`. One that is submitted to the store may
start `waiting` for others or `held` by an operator as well, and is `dispatched` while its message is at the broker;
without a store that is unknown, and `queued` is all of it. A job ends in exactly one terminal state. An end is
final, but for two of jobs that were sent: a `failed` one that is replayed, and a `cancelled` one that is sent again
under its id, is `queued` again. In the store an end is final as well, until an operator has the same job go on
(`RESUMABLE`).
"""

from enum import StrEnum

__all__ = ["CHANGEABLE", "RESUMABLE", "TERMINAL", "TRANSITIONS", "UNDERWAY", "Cancellation", "JobState", "can_follow"]


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    """For other jobs."""
    HELD = "held"
    """By an operator, until it is released."""
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    """The store has handed it to the broker."""
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    """Its time was over before it started."""
    SKIPPED = "skipped"
    """A condition of its own said that it is not needed."""
    UPSTREAM_FAILED = "upstream_failed"
    """A job that it waited for has not ended as it had to."""
    UNKNOWN = "unknown"
    """The job is unknown: said of an id, and never the state of a job."""

    @property
    def is_final(self) -> bool:
        """Whether a job ends in it."""
        return self in TERMINAL

    @property
    def is_sticky(self) -> bool:
        """Whether nothing may follow it, so that no store of results replaces its record by another one."""
        return self in TERMINAL and not TRANSITIONS[self]


class Cancellation(StrEnum):
    """What became of the wish to cancel a job. True where the job will not be done."""

    CANCELLED = "cancelled"
    """It waited, and was taken away."""
    REQUESTED = "requested"
    """It is stopped where it runs, or ended without a run where it comes up; it may end by itself in the moment."""
    ENDED = "ended"
    """It has ended before."""
    UNKNOWN = "unknown"
    """The state knows no such job. One that waits at the broker, or runs and reports nothing, is ended even so."""

    def __bool__(self) -> bool:
        return self in (Cancellation.CANCELLED, Cancellation.REQUESTED)


TERMINAL = frozenset(
    {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.EXPIRED,
        JobState.SKIPPED,
        JobState.UPSTREAM_FAILED,
    }
)

CHANGEABLE = frozenset(
    {JobState.WAITING, JobState.HELD, JobState.SCHEDULED, JobState.QUEUED, JobState.RETRYING},
)
"""Those in which only the store has a job of the store: it can be changed, and cancelled for good."""

RESUMABLE = TERMINAL - {JobState.SUCCEEDED}
"""Ends of a job of the store after which an operator may have the same job go on."""

UNDERWAY = frozenset({JobState.DISPATCHED, JobState.RUNNING})
"""Those in which a worker has a job of the store, or may have it."""

_GIVEN_UP = frozenset({JobState.CANCELLED, JobState.EXPIRED})
_AFTER_A_RUN = _GIVEN_UP | {
    JobState.SUCCEEDED,
    JobState.RETRYING,
    JobState.SCHEDULED,
    JobState.QUEUED,
    JobState.FAILED,
}

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: _GIVEN_UP
    | {JobState.SCHEDULED, JobState.QUEUED, JobState.HELD, JobState.SKIPPED, JobState.UPSTREAM_FAILED},
    JobState.HELD: _GIVEN_UP
    | {JobState.WAITING, JobState.SCHEDULED, JobState.QUEUED, JobState.SKIPPED, JobState.UPSTREAM_FAILED},
    JobState.SCHEDULED: _GIVEN_UP | {JobState.QUEUED, JobState.HELD},
    JobState.QUEUED: _GIVEN_UP
    | {JobState.DISPATCHED, JobState.RUNNING, JobState.SCHEDULED, JobState.HELD, JobState.FAILED},
    JobState.DISPATCHED: _AFTER_A_RUN | {JobState.RUNNING},
    JobState.RUNNING: _AFTER_A_RUN,
    JobState.RETRYING: _GIVEN_UP | {JobState.QUEUED, JobState.HELD},
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset({JobState.QUEUED}),
    JobState.EXPIRED: frozenset(),
    JobState.SKIPPED: frozenset(),
    JobState.UPSTREAM_FAILED: frozenset(),
    JobState.UNKNOWN: frozenset(),
}


def can_follow(before: JobState, after: JobState) -> bool:
    """Whether a job may go from `before` to `after` in one step."""
    return after in TRANSITIONS[before]
