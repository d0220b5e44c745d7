"""Integer codes of job states and event kinds in the tables. A code is never reused for another meaning."""

from typing import Final, Literal

from taskmq.model.jobs.dependencies import DependencyCondition
from taskmq.model.states import UNDERWAY, JobState

EventKind = Literal[
    "change",
    "cancel",
    "cancel_requested",
    "hold",
    "release",
    "retry",
    "superseded",
    "lost",
    "refused",
    "undispatched",
    "unknown_attempt",
    "detached",
    "preempt_requested",
    "preempted",
    "ended",
    "interrupted",
]

CODES: Final[dict[JobState, int]] = {
    JobState.QUEUED: 1,
    JobState.DISPATCHED: 2,
    JobState.RUNNING: 3,
    JobState.RETRYING: 4,
    JobState.SUCCEEDED: 5,
    JobState.FAILED: 6,
    JobState.CANCELLED: 7,
    JobState.EXPIRED: 8,
    JobState.SKIPPED: 9,
    JobState.UPSTREAM_FAILED: 10,
    JobState.WAITING: 11,
    JobState.HELD: 12,
    JobState.SCHEDULED: 13,
}
STATES: Final = {code: state for state, code in CODES.items()}

UNDERWAY_CODES: Final = tuple(sorted(CODES[state] for state in UNDERWAY))

CONDITION_CODES: Final[dict[DependencyCondition, int]] = {"succeeded": 1, "ended": 2, "failed": 3}
CONDITIONS: Final[dict[int, DependencyCondition]] = {code: condition for condition, code in CONDITION_CODES.items()}

EVENT_CODES: Final[dict[EventKind, int]] = {
    "change": 1,
    "cancel": 2,
    "cancel_requested": 3,
    "hold": 4,
    "release": 5,
    "retry": 6,
    "superseded": 7,
    "lost": 8,
    "refused": 9,
    "undispatched": 10,
    "unknown_attempt": 11,
    "detached": 12,
    "preempt_requested": 13,
    "preempted": 14,
    "ended": 15,
    "interrupted": 16,
}
EVENT_KINDS: Final = {code: kind for kind, code in EVENT_CODES.items()}
