"""Errors that a task or its worker raises while a job runs."""

from taskmq.errors.base import TaskMQError


class MalformedMessage(TaskMQError):
    """Raised when a message is not a task: its body cannot be decoded, or has an unknown version."""


class UnknownTask(TaskMQError):
    """Raised when a message names a task that this worker has not registered."""


class TaskTimeout(TaskMQError):
    """Raised when the task ran longer than its `timeout`."""


class SoftTimeout(TaskTimeout):
    """Raised inside a task that runs longer than its `soft_timeout`, so that it can clean up and end.

    If the task ends with it, it counts as timed out; if it catches it, it continues until its `timeout`.
    """

    def __init__(self, message: str = "the task ran longer than its soft_timeout") -> None:
        super().__init__(message)


class RunSuperseded(TaskMQError):
    """Raised when another run of the same job has started: this run must stop, and can save nothing more."""


class LockTimeout(TaskMQError, TimeoutError):
    """Raised when a lock could not be acquired within the caller's timeout.

    Attributes:
        name: the lock's name.
        owner: the current holder.
    """

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"lock {name!r} could not be acquired in time: {owner} holds it")
        self.name = name
        self.owner = owner


class LockLost(TaskMQError):
    """Raised when a lock was lost inside its block: another holder may have acted in the meantime.

    Attributes:
        name: the lock's name.
        token: this holder's fencing token; the next holder's is larger.
    """

    def __init__(self, name: str, token: int) -> None:
        super().__init__(f"lock {name!r} (token {token}) was lost: it could not be renewed in time")
        self.name = name
        self.token = token


class MemoryExceeded(TaskMQError):
    """Raised when the task's process used more memory than its `resources` allow (`limit` bytes), and was killed."""

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class ResultTooLarge(TaskMQError):
    """Raised when a task's result is larger than the worker's `--result-limit`; it was not stored.

    Attributes:
        size, limit: bytes.
    """

    def __init__(self, task: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"the result of task {task} has {size:,} bytes, the limit is {limit:,}: store the data elsewhere and "
            "return a reference, or raise --result-limit"
        )
        self.size = size
        self.limit = limit


class WorkerLost(TaskMQError):
    """Raised when the process that ran the task ended before the task did.

    Attributes:
        starts: how often the job was started, if it is dead because no start ended.
    """

    def __init__(self, message: str, *, starts: int | None = None) -> None:
        super().__init__(message)
        self.starts = starts
