"""How one delivery of a job ended: a closed set, decided once and settled once."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

__all__ = [
    "Answered",
    "Cancelled",
    "Dead",
    "DeadReason",
    "Interrupted",
    "Outcome",
    "Parked",
    "Retried",
    "Snoozed",
    "Succeeded",
]

DeadReason = Literal["error", "rejected", "invalid_arguments", "timeout", "memory", "worker_lost", "result"]
"""Why a job is dead:

- `error`: its attempts are used up, or its error is never retried;
- `rejected`: the task raised `Reject`;
- `invalid_arguments`: they do not fit the task;
- `timeout`: the last attempt ran out of time, `soft_timeout` or `timeout`;
- `memory`: the last attempt's process took more than the task's `resources` say;
- `worker_lost`: the process that ran it died;
- `result`: what it returned cannot be stored: it has no form as data, or is larger than `--result-limit`. The work is
  done, so it is not tried again.
"""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The task returned."""

    value: object


@dataclass(frozen=True, slots=True)
class Answered:
    """An earlier job has done this one's work already, and has left its encoded return value."""

    content_type: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed and another one follows after `delay`."""

    delay: timedelta
    error: BaseException


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The task wants to run later; no attempt is counted."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Dead:
    """No further attempt: the job goes to its queue's dead-letter queue."""

    reason: DeadReason
    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job ends here, neither done nor failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker is stopping; the job goes back to its queue as if it had never started."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The message cannot be run by this worker.

    After `delay` another worker may know it (a task name that a rolling deploy has not brought here yet);
    without one it goes to the parking queue for people to look at.
    """

    reason: str
    delay: timedelta | None = None


Outcome = Succeeded | Answered | Retried | Snoozed | Dead | Cancelled | Interrupted | Parked
