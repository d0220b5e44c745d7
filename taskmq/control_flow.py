"""What a task raises to say how its run ends; its names are in `taskmq.errors`, too."""

from datetime import timedelta
from typing import Any

__all__ = ["TaskControl", "rebuild"]


def rebuild(kind: type[Exception], args: tuple[Any, ...], facts: dict[str, Any]) -> Exception:
    """An exception as it was, for pickle."""
    error = kind.__new__(kind, *args)
    # An OSError, such as TimeoutError, leaves them to its constructor.
    error.args = args
    error.__dict__.update(facts)
    return error


class TaskControl(Exception):
    """Base of what a task raises to say how its run ends."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.args, self.__dict__)


class Retry(TaskControl):
    """Run again later. Counts as an attempt; dead-lettered once the attempts are used up."""

    def __init__(self, delay: timedelta | float | str | None = None, reason: str = "") -> None:
        super().__init__(reason or "the task asked for a retry")
        self.delay = delay
        self.reason = reason


class Snooze(TaskControl):
    """Run again after `delay`, without counting an attempt."""

    def __init__(self, delay: timedelta | float | str, reason: str = "") -> None:
        super().__init__(reason or "the task asked for a pause")
        self.delay = delay
        self.reason = reason


class Reject(TaskControl):
    """Dead-letter the job now, whatever attempts are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Ignore(TaskControl):
    """End the job now, neither done nor failed: no retry, no dead letter; waiters get `JobCancelled`."""

    def __init__(self, reason: str = "ignored by the task") -> None:
        super().__init__(reason)
        self.reason = reason
