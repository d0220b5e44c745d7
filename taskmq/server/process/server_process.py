"""The server's process: uvicorn around the application, with a graceful shutdown."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Generator
from typing import Final

import uvicorn

from taskmq.contracts.loggers import contain_below, contain_ours
from taskmq.errors import InvalidSetting
from taskmq.server.edge import Edge
from taskmq.server.process.connections import OpenConnections, connections_within, descriptors
from taskmq.server.process.proxies import behind_proxies
from taskmq.server.settings import ServerSettings

_BACKLOG: Final = 1024
_IDLE_SECONDS: Final = 30


class ServerProcess:
    """Serves an application until a signal stops it."""

    def __init__(self, application: Edge, settings: ServerSettings) -> None:
        contain_ours()
        for library in ("uvicorn", "litestar"):
            contain_below(library)
        # The command logs start and stop.
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        connections = OpenConnections(settings.connections, descriptors=descriptors())
        config = uvicorn.Config(
            behind_proxies(application, settings.trusted_proxies),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            # The pure Python parser, so that every installation rejects the same requests.
            http=connections_within(settings.request_seconds, connections),
            ws="none",
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=settings.grace,
        )
        self._server = _Uvicorn(config)
        self._settings = settings
        self._application = application
        self._draining: asyncio.TimerHandle | None = None

    async def run(self, *, on_ready: Callable[[str], None]) -> None:
        """Serve. Returns after `stop` was called and running requests ended.

        Args:
            on_ready: called with the address once the server accepts connections.

        Raises:
            InvalidSetting: the address is in use, or not on this machine.
        """
        listener = self._listen()
        with listener:
            host, port = listener.getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            self._server.on_ready = lambda: on_ready(f"http://{name}:{port}{self._settings.root_path}")
            await self._server.serve([listener])

    def stop(self) -> None:
        """Report not ready, serve for another `drain` seconds, then finish running requests.

        `run` then returns. A second call ends the drain, a third one all running requests. Call it in the event loop.
        """
        self._application.begin_stop()
        if self._draining is None and self._settings.drain:
            self._draining = asyncio.get_running_loop().call_later(self._settings.drain, self._end)
        else:
            self._end()

    def _end(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        if self._server.should_exit:
            self._server.force_exit = True
        self._server.should_exit = True

    def _listen(self) -> socket.socket:
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise InvalidSetting(
                f"cannot listen at {host}:{port}: {error.strerror or error}; choose another --host or --port"
            ) from error
        # asyncio only sets it if the socket names its protocol. Without it, each response body waited 40 ms for the
        # client to acknowledge the head (measured 2026-11-26 on a kept-alive connection).
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, and with a callback when it accepts connections."""

    on_ready: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
