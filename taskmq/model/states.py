"""States of a job, and the one table of legal transitions. Every store obeys it.

    waiting -> scheduled -> queued -> dispatched -> running -> succeeded | failed | cancelled | expired
    |          |            |         `-----------> retrying, scheduled (snoozed) or queued again
    `--------> held <-------'

A published job starts `scheduled` (it is not due yet) or `queued`. A job submitted to the store may also start
`waiting` for others, or `held` by an operator. It is `dispatched` while its message is at the broker; without a store
this is unknown, and `queued` covers it. A job ends in exactly one terminal state. An end is final with two exceptions
for published jobs: a replayed `failed` job, and a `cancelled` job that is published again under its id, are `queued`
again. In the store an end is final, too, unless an operator resumes the job (`RESUMABLE`).
"""

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    """Waits for other jobs."""
    HELD = "held"
    """Held by an operator until it is released."""
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    """Published to the broker by the store."""
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    """Expired before it started."""
    SKIPPED = "skipped"
    """Not needed, by the job's own condition."""
    UPSTREAM_FAILED = "upstream_failed"
    """Not run, because a job that it waited for did not end as required."""
    UNKNOWN = "unknown"
    """No such job: the answer for an id, never the state of a job."""

    @property
    def is_final(self) -> bool:
        """Whether jobs end in this state."""
        return self in TERMINAL

    @property
    def is_sticky(self) -> bool:
        """Whether no state may follow, so that no store of results replaces its record."""
        return self in TERMINAL and not TRANSITIONS[self]


class Cancellation(StrEnum):
    """The effect of a request to cancel a job. True if the job will not be done."""

    CANCELLED = "cancelled"
    """The job waited, and was removed."""
    REQUESTED = "requested"
    """A running job is asked to stop, and a job without a run ends when a worker receives it. It may finish first."""
    ENDED = "ended"
    """The job ended before."""
    UNKNOWN = "unknown"
    """The state does not know the job.

    A job that waits at the broker, or runs without reporting, is cancelled all the same.
    """

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
"""States in which only the store has a stored job: it can be changed, and cancelled for good."""

RESUMABLE = TERMINAL - {JobState.SUCCEEDED}
"""Ends of a stored job after which an operator may resume it."""

UNDERWAY = frozenset({JobState.DISPATCHED, JobState.RUNNING})
"""States in which a worker has a stored job, or may have it."""

_GIVEN_UP = frozenset({JobState.CANCELLED, JobState.EXPIRED})
_AFTER_A_RUN = _GIVEN_UP | {
    JobState.SUCCEEDED,
    JobState.RETRYING,
    JobState.SCHEDULED,
    JobState.QUEUED,
    JobState.HELD,
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
    # Its message came back: it waits for another worker under the same token.
    JobState.RUNNING: _AFTER_A_RUN | {JobState.DISPATCHED},
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
    """Return whether a job may go from `before` to `after` in one step."""
    return after in TRANSITIONS[before]
