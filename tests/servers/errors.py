"""Errors of test servers: unavailable, failed, or not started by the tests."""


class ServerError(Exception):
    """The root of every error of this package."""


class ServerUnavailable(ServerError):
    """Raised when no source can provide this server; the message says what to install."""


class ServerFailed(ServerError):
    """Raised when a server ended by itself, refused a request or was not ready in time; has the end of its log."""


class NotSupported(ServerError):
    """Raised when a server that the tests did not start should be stopped, killed or paused."""
