"""How one delivery of a job ended: a closed set, decided once and settled once."""

from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Literal

import msgspec

__all__ = [
    "EXPIRED",
    "OUTCOME_NAMES",
    "STOPPED",
    "AlreadyDone",
    "Cancelled",
    "Dead",
    "DeadReason",
    "ErrorRecord",
    "Interrupted",
    "Outcome",
    "Parked",
    "Retried",
    "Snoozed",
    "Succeeded",
    "error_line",
    "frames_of",
    "message_of",
    "type_name",
]

EXPIRED: Final = "expired before it started"
"""The reason of a cancelled job whose time was over."""

STOPPED: Final = "its worker stopped"
"""The reason of a run that was interrupted because its worker drains."""

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


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A task's error as data."""

    type_name: str
    message: str
    traceback: str = ""


def type_name(error: BaseException) -> str:
    """The name of an error's type, with its module unless it is Python's own."""
    kind = type(error)
    try:
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    except BaseException:  # noqa: BLE001 - a metaclass may do anything, too
        return "(an error without a name)"


def message_of(error: BaseException) -> str:
    """The words of an error, whatever its class does when it is asked for them."""
    try:
        # A plain text: the error's own may be of a class that does anything, too.
        return str.__str__(str(error))
    except BaseException as failure:  # noqa: BLE001 - a class of the app, which may do anything
        return f"(its message cannot be read: {type_name(failure)})"


def frames_of(error: BaseException) -> TracebackType | None:
    """The traceback of an error as the interpreter keeps it, without asking its class."""
    # The interpreter's own attribute: the class may have another one of this name.
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


def error_line(type_name: str, message: str, *, longest: int = 200) -> str:
    """An error in one line for lists: its type and the first line of what it said, cut after `longest` characters."""
    first = message.strip().partition("\n")[0].rstrip()
    text = ": ".join(filter(None, (type_name, first)))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class Succeeded(msgspec.Struct, frozen=True):
    """The task returned this value."""

    value: object


class AlreadyDone(msgspec.Struct, frozen=True):
    """An earlier job has done this one's work already, and has left its encoded return value."""

    content_type: str
    value: bytes


class Retried(msgspec.Struct, frozen=True):
    """The attempt failed and another one follows after `delay`."""

    delay: timedelta
    error: BaseException


class Snoozed(msgspec.Struct, frozen=True):
    """The job is to run later; no attempt is counted.

    Attributes:
        is_limited: a limit of its task is used up.
    """

    delay: timedelta
    is_limited: bool = False


class Dead(msgspec.Struct, frozen=True):
    """No further attempt: the job goes to its queue's dead-letter queue."""

    reason: DeadReason
    error: BaseException


class Cancelled(msgspec.Struct, frozen=True):
    """The job ends here, neither done nor failed."""

    reason: str


class Interrupted(msgspec.Struct, frozen=True):
    """The job goes back to its queue, and no attempt is counted.

    Attributes:
        reason: why its run was stopped, for the history of a job of the store; "": there was no run.
        delay: how long the job waits for the end of an outage before it runs again; None: it may run at once.
        error: the outage, as the run met it.
    """

    reason: str = ""
    delay: timedelta | None = None
    error: BaseException | None = None


class Parked(msgspec.Struct, frozen=True):
    """The message cannot be run by this worker.

    After `delay` another worker may know it (a task name that a rolling deploy has not brought here yet);
    without one it goes to the parking queue for people to look at.
    """

    reason: str
    delay: timedelta | None = None


Outcome = Succeeded | AlreadyDone | Retried | Snoozed | Dead | Cancelled | Interrupted | Parked

# Events, metrics and stored figures use these names: a class may be renamed, its outcome may not.
OUTCOME_NAMES: Final[Mapping[type[Outcome], str]] = {
    Succeeded: "succeeded",
    AlreadyDone: "answered",
    Retried: "retried",
    Snoozed: "snoozed",
    Dead: "dead",
    Cancelled: "cancelled",
    Interrupted: "interrupted",
    Parked: "parked",
}
"""What each outcome is called in events, metrics and logs."""
