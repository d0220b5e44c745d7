"""Outcomes of one delivery of a job: a closed set; each is decided once and settled once."""

from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import Final, Literal

import msgspec

EXPIRED: Final = "expired before it started"
"""Reason of a job that was cancelled because it expired."""

STOPPED: Final = "its worker stopped"
"""Reason of a run that was interrupted because its worker drains."""

DeadReason = Literal["error", "rejected", "invalid_arguments", "timeout", "memory", "worker_lost", "result"]
"""Reasons of a dead job:

- `error`: its attempts are used up, or its error is never retried;
- `rejected`: the task raised `Reject`;
- `invalid_arguments`: they do not fit the task;
- `timeout`: the last attempt exceeded `soft_timeout` or `timeout`;
- `memory`: the last attempt's process exceeded the memory in the task's `resources`;
- `worker_lost`: the process that ran it died;
- `result`: its return value cannot be stored: it cannot be encoded, or is larger than `--result-limit`. The work is
  done, so it is not retried.
"""


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A task's error as data."""

    type_name: str
    message: str
    traceback: str = ""


def type_name(error: BaseException) -> str:
    """Return the name of an error's type, with its module unless it is a builtin."""
    kind = type(error)
    try:
        return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    except BaseException:  # noqa: BLE001 - a metaclass may do anything, too
        return "(an error without a name)"


def message_of(error: BaseException) -> str:
    """Return the message of an error, even if its class fails to produce one."""
    try:
        # A plain `str`: the error may return an instance of a subclass with code of its own.
        return str.__str__(str(error))
    except BaseException as failure:  # noqa: BLE001 - a class of the app, which may do anything
        return f"(its message cannot be read: {type_name(failure)})"


def frames_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error from the interpreter, without calling its class."""
    # The interpreter's own attribute: the class may define another one of this name.
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


def error_line(type_name: str, message: str) -> str:
    """Return an error in one line for lists: its type and the first line of its message, at most 200 characters."""
    first = message.strip().partition("\n")[0].rstrip()
    text = ": ".join(filter(None, (type_name, first)))
    return text if len(text) <= 200 else f"{text[:199]}…"


class Succeeded(msgspec.Struct, frozen=True):
    """The task returned this value."""

    value: object


class AlreadyDone(msgspec.Struct, frozen=True):
    """An earlier job did the work already; its encoded return value is the result."""

    content_type: str
    value: bytes


class Retried(msgspec.Struct, frozen=True):
    """The attempt failed, and another one follows after `delay`."""

    delay: timedelta
    error: BaseException


class Snoozed(msgspec.Struct, frozen=True):
    """The job runs later; no attempt is counted.

    Attributes:
        is_limited: whether a limit of its task was reached.
        until: instant of the next run, in ms, if a call of the task suspended it.
        suspension: what that call waits for.
        is_held: whether an operator has to release the job first, because of `suspension`.
    """

    delay: timedelta
    is_limited: bool = False
    until: int | None = None
    suspension: str = ""
    is_held: bool = False


class Dead(msgspec.Struct, frozen=True):
    """No further attempt follows: the job goes to its queue's dead-letter queue."""

    reason: DeadReason
    error: BaseException


class Cancelled(msgspec.Struct, frozen=True):
    """The job ends here, neither done nor failed."""

    reason: str


class Interrupted(msgspec.Struct, frozen=True):
    """The job returns to its queue, and no attempt is counted.

    Attributes:
        reason: why its run was stopped, for the history of a stored job; "": there was no run.
        delay: time to wait for the end of an outage before the next run; None: it may run immediately.
        error: the error of the outage.
    """

    reason: str = ""
    delay: timedelta | None = None
    error: BaseException | None = None


class Parked(msgspec.Struct, frozen=True):
    """This worker cannot run the message.

    With `delay`, another worker may know the task after that time, for example during a rolling deploy. Without
    `delay`, the message goes to the parking queue for an operator.
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
"""Name of each outcome in events, metrics and logs."""
