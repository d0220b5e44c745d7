"""Errors of callers and their rights, and of calls to a server."""

from taskmq.errors.base import TaskMQError


class NotAuthenticated(TaskMQError):
    """Raised when the caller has no valid credential. The message never says why a credential is invalid."""


class LoginThrottled(NotAuthenticated):
    """Raised when too many logins have failed: this one was not checked.

    Attributes:
        retry_after: seconds to wait.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"too many failed logins: try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class NotPermitted(TaskMQError):
    """Raised when the caller may see a thing, but lacks the permission to do this to it.

    Attributes:
        permission: the missing permission.
    """

    def __init__(self, message: str, *, permission: str = "") -> None:
        super().__init__(message)
        self.permission = permission


class ConfirmationNeeded(NotPermitted):
    """Raised when the call needs the caller's password again, or a sign-in within the last five minutes."""


class IdentityNotFound(TaskMQError):
    """Raised when there is no such tenant, user, role, session or token, or none visible to the caller."""


class IdentityConflict(TaskMQError):
    """Raised when a tenant, user or token is not in the state that the caller expects; nothing was changed.

    Attributes:
        version: the user's current version, if the caller gave another one; 0 in other conflicts.
    """

    def __init__(self, message: str, *, version: int = 0) -> None:
        super().__init__(message)
        self.version = version


class LimitReached(TaskMQError):
    """Raised when a user has the most tokens, or a tenant the most alert rules or channels; nothing was stored."""

    def __init__(self, message: str, *, most: int) -> None:
        super().__init__(message)
        self.most = most


class ServerUnavailable(TaskMQError):
    """Raised when a taskmq server could not be reached, or did not answer.

    Attributes:
        is_certain: whether the call certainly changed nothing; otherwise that is unknown.
    """

    def __init__(self, message: str, *, is_certain: bool = True) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class RequestRefused(TaskMQError):
    """Raised when the API refuses a call for a reason without an error class.

    Attributes:
        status: HTTP status of the answer.
        code: stable error code; "" if the answer is not a taskmq server's.
    """

    def __init__(self, message: str, *, status: int, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
