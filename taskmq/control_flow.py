"""Exceptions that a task raises to control how its run ends; also available in `taskmq.errors`."""

from datetime import timedelta
from typing import Any, cast

__all__ = ["CallMismatch", "Suspension", "TaskControl", "find_suspension", "rebuild"]


def rebuild(kind: type[Exception], args: tuple[Any, ...], facts: dict[str, Any]) -> Exception:
    """Rebuild an exception, for pickle."""
    error = kind.__new__(kind, *args)
    # An OSError, such as TimeoutError, sets them in its constructor.
    error.args = args
    error.__dict__.update(facts)
    return error


class TaskControl(Exception):
    """Base of the exceptions that control how a run ends."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.args, self.__dict__)


class Retry(TaskControl):
    """Raised to run the job again later. Counts as an attempt; the job is dead-lettered once its attempts are used
    up.
    """

    def __init__(self, delay: timedelta | float | str | None = None, reason: str = "") -> None:
        super().__init__(reason or "the task asked for a retry")
        self.delay = delay
        self.reason = reason


class Snooze(TaskControl):
    """Raised to run the job again after `delay`, without counting an attempt."""

    def __init__(self, delay: timedelta | float | str, reason: str = "") -> None:
        super().__init__(reason or "the task asked for a pause")
        self.delay = delay
        self.reason = reason


class Reject(TaskControl):
    """Raised to dead-letter the job now, even if attempts are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Ignore(TaskControl):
    """Raised to end the job as neither succeeded nor failed: no retry, no dead letter; callers get `JobCancelled`."""

    def __init__(self, reason: str = "ignored by the task") -> None:
        super().__init__(reason)
        self.reason = reason


class Suspension(BaseException):
    """Raised inside a task by a call that waits outside of the worker; `except Exception` lets it pass.

    Attributes:
        reason: what the job waits for.
        until: the instant at which it runs again, ms since the epoch.
        left: the time until then.
    """

    def __init__(self, reason: str, until: int, left: timedelta, /) -> None:
        # Without a call of the base class, pickle passes all arguments.
        self.reason = reason
        self.until = until
        self.left = left

    def __str__(self) -> str:
        return self.reason


class CallMismatch(Suspension):
    """Raised inside a task whose calls differ from those that an earlier run saved: its job is held.

    In a group with other suspensions, it decides the outcome.
    """

    def __init__(self, reason: str, /) -> None:
        super().__init__(reason, 0, timedelta(0))


def find_suspension(error: BaseException) -> Suspension | None:
    """Return the suspension that ends the run; of a group of nothing else, the one that is over first."""
    if isinstance(error, Suspension):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [find_suspension(each) for each in group.exceptions]
    known = [each for each in found if each is not None]
    return min(known, key=lambda each: each.until) if len(known) == len(found) else None
