"""Errors of the broker's queues, the state and the job store."""

from taskmq.errors.base import TaskMQError


class QueueMissing(TaskMQError):
    """Raised when the named queue does not exist."""

    def __init__(self, queue: str, hint: str = "") -> None:
        super().__init__(f"queue {queue!r} does not exist at the broker{f': {hint}' if hint else ''}")
        self.queue = queue
        self.hint = hint


class TopologyMismatch(TaskMQError):
    """Raised when a queue or exchange exists with other properties than taskmq declares; nothing was changed."""


class StateUnavailable(TaskMQError):
    """Raised when the state could not be reached.

    Attributes:
        is_certain: whether the call certainly changed nothing; otherwise that is unknown.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class StoreUnavailable(TaskMQError):
    """Raised when the job store could not be reached.

    Attributes:
        is_certain: whether the call certainly changed nothing; otherwise that is unknown.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class StoreMismatch(TaskMQError):
    """Raised when the tables of the job store have another version, or its database cannot hold all text."""


class StoreRefused(TaskMQError):
    """Raised when the job store rejects a request for good; nothing was changed.

    The message contains no values, since they may be arguments of tasks.
    """


class StoreWentBack(TaskMQError):
    """Raised when the job store lost what it had confirmed, or its clock went back: an operator must intervene.

    A standby took over without the last transactions, a backup was restored, or a clock was set back.
    """


class DefinitionNotFound(TaskMQError):
    """Raised when the store has no definition of this name, tenant or version."""


class DefinitionConflict(TaskMQError):
    """Raised when the definition does not have the version that the caller expects; nothing was changed.

    Attributes:
        version: the current version.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version
