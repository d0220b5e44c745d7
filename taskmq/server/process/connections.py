"""Connections of clients: how many there may be, and how long each may make the server wait.

A client that sends a byte a minute, or reads nothing of its answers, would hold a connection for ever, and many such
clients every descriptor that the process has. So a request has to be complete in time, its body included, an answer
has to be read, and where there are too many connections, one that is waiting gives way to a new one.
"""

import asyncio
import resource
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["OpenConnections", "connections_within", "descriptors"]

_RESERVED: Final = 128
_MOST_DESCRIPTORS: Final = 65_536
# A client that takes less than this in the time for a request does not read.
_LEAST_READ: Final = 16 * 1024


def descriptors() -> int:
    """Raise the limit of open files as far as the system allows, up to 65,536; return what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class OpenConnections:
    """The connections of one server, the one that has been quiet for longest first.

    Args:
        most: so many may be open, and never more than leave 128 of the process' descriptors for other things.
    """

    def __init__(self, most: int, *, descriptors: int) -> None:
        self._most = max(min(most, descriptors - _RESERVED), 1)
        self._open: dict[_TimedProtocol, None] = {}

    def __len__(self) -> int:
        """Count those that are open."""
        return len(self._open)

    def add(self, connection: "_TimedProtocol") -> None:
        """Take a new connection; the quietest that waits for its client gives way to it, else it is cut itself."""
        self._open[connection] = None
        if len(self._open) > self._most:
            next((one for one in self._open if one.is_waiting()), connection).cut()

    def touch(self, connection: "_TimedProtocol") -> None:
        """Note that the client has sent something."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def remove(self, connection: "_TimedProtocol") -> None:
        """Forget a connection that has ended."""
        self._open.pop(connection, None)


def connections_within(seconds: float, opened: OpenConnections) -> type[asyncio.Protocol]:
    """The protocol of a server whose clients have so many seconds for each request, and for reading its answer."""

    class Within(_TimedProtocol):
        request_seconds = seconds
        connections_open = opened

    return Within


class _TimedProtocol(H11Protocol):
    """One connection: cut where a request that has begun, or the first one, is not complete in time, or not read."""

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
        # Each answer waits for the one before it to be read, so what is unread only shrinks until the client has it.
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
        """Whether it is the client's turn: to send the rest of a request, or another one, or to read an answer."""
        return not self._is_complete() or self._reading is not None

    def cut(self) -> None:
        """End the connection at once, whatever is on its way."""
        # The transport reports the end in a later turn of the loop.
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
