"""What can go wrong with a test server: it cannot be had, it failed, or it is not ours to do that to."""


class ServerError(Exception):
    """The root of every error of this package."""


class ServerUnavailable(ServerError):
    """No source can provide this server; the message says what to install."""


class ServerFailed(ServerError):
    """A server ended by itself, refused a request or was not ready in time; carries the end of its log."""


class NotSupported(ServerError):
    """This server was not started by us, so it cannot be stopped, killed or paused."""
