"""Client connections: their maximum number and time limits.

A client that sends one byte a minute, or never reads a response, would hold a connection for ever. Many of them would
use up the process's file descriptors. Therefore a request with its body must arrive in time, and a response must be
read. If there are too many connections, a waiting one is closed in favour of a new one.
"""

import asyncio
import resource
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_RESERVED: Final = 128
_MOST_DESCRIPTORS: Final = 65_536
# A client that reads less than this within the time limit counts as stalled.
_LEAST_READ: Final = 16 * 1024


def descriptors() -> int:
    """Raise the limit of open files as far as the system allows, up to 65,536. Returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class OpenConnections:
    """The open connections of one server, ordered by their last activity.

    Args:
        most: the maximum number, lowered if needed to keep 128 descriptors for other purposes.
    """

    def __init__(self, most: int, *, descriptors: int) -> None:
        self._most = max(min(most, descriptors - _RESERVED), 1)
        self._open: dict[_TimedProtocol, None] = {}

    def __len__(self) -> int:
        """Count the open connections."""
        return len(self._open)

    def add(self, connection: "_TimedProtocol") -> None:
        """Add a connection. Beyond the limit, the longest idle one that waits for its client is closed, or else this
        one.
        """
        self._open[connection] = None
        if len(self._open) > self._most:
            next((one for one in self._open if one.is_waiting()), connection).cut()

    def touch(self, connection: "_TimedProtocol") -> None:
        """Record activity of the client."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: "_TimedProtocol") -> None:
        """Remove a closed connection."""
        self._open.pop(connection, None)


def connections_within(seconds: float, opened: OpenConnections) -> type[asyncio.Protocol]:
    """Build the protocol of a server with this time limit for each request and for reading its response."""

    class Within(_TimedProtocol):
        request_seconds = seconds
        connections_open = opened

    return Within


class _TimedProtocol(H11Protocol):
    """A connection, aborted if a request is not complete or a response not read in time."""

    request_seconds = 0.0
    connections_open: OpenConnections

    def __init__(
        self, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._deadline: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Each response waits until the client has read the previous one, so unread data only shrinks.
        transport.set_write_buffer_limits(high=0)
        self._expect()
        self.connections_open.add(self)

    def data_received(self, data: bytes) -> None:
        self.connections_open.touch(self)
        super().data_received(data)
        if self._is_complete():
            self._forget()
        else:
            self._expect()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._forget_reading()
        self.connections_open.remove(self)
        super().connection_lost(exc)

    def is_waiting(self) -> bool:
        """Whether the server waits for the client to send a request or read a response."""
        return not self._is_complete() or self._reading is not None

    def cut(self) -> None:
        """Abort the connection, including data in transit."""
        # The transport reports the end in a later iteration of the event loop.
        self.connections_open.remove(self)
        self.transport.abort()

    def _is_complete(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _expect(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.request_seconds, self.cut)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expect_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self.request_seconds, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        self._reading = None
        if unread - self.transport.get_write_buffer_size() < _LEAST_READ:
            self.cut()
        else:
            self._expect_reading()

    def _forget_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
