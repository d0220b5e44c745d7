"""Connections of clients, which have so long to say what they want.

uvicorn waits for ever for a request whose first bytes have come; a client that sends a byte a minute would hold a
connection, and many such clients all that there are. Here a request has to be complete in time, its body too.
"""

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["connections_within"]


def connections_within(seconds: float) -> type[asyncio.Protocol]:
    """The protocol of a server whose clients have so many seconds for each request."""

    class Within(_TimedProtocol):
        request_seconds = seconds

    return Within


class _TimedProtocol(H11Protocol):
    """One connection: closed where a request that has begun, or the first one, is not complete in time."""

    request_seconds = 0.0

    def __init__(
        self, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_complete():
            self._forget()
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _is_complete(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.more_body

    def _expect(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.request_seconds, self.transport.abort)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
