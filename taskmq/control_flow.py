"""Exceptions that a task raises to control how its run ends; also available in `taskmq.errors`."""

from datetime import timedelta
from typing import Any

__all__ = ["TaskControl", "rebuild"]


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
