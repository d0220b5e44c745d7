"""Health over HTTP: `/live`, `/ready`, `/status` and `/metrics` of a process, for probes and monitoring.

It answers GET and HEAD of HTTP/1.1, one request a connection, without authentication: it is bound to this machine
alone by default. Nothing here asks the broker.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.telemetry.metrics import Exporter

_log = logging.getLogger("taskmq")

_DEFAULT_HOST: Final = "127.0.0.1"

_JSON: Final = "application/json"
_PATIENCE: Final = 5.0
_MOST_HEADERS: Final = 1 << 14
_MOST_CONNECTIONS: Final = 64


class Address(msgspec.Struct, frozen=True):
    """Address of the health endpoint: a port, or a socket in the file system."""

    host: str = _DEFAULT_HOST
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `PORT`, `HOST:PORT`, or the path of a socket, which contains a slash. A plain port is one of 127.0.0.1.

    Raises:
        InvalidOption: it is none of these.
    """
    if "/" in text:
        return Address(path=text)
    host, colon, port = text.rpartition(":")
    if port.isdecimal() and int(port) < 1 << 16 and (host or not colon):
        return Address(host=host.strip("[]") or _DEFAULT_HOST, port=int(port))
    raise InvalidOption(f"health port {text!r}: PORT, HOST:PORT, or the path of a socket, with a slash in it")


class _HttpAnswer(msgspec.Struct, frozen=True):
    status: HTTPStatus
    body: bytes
    content_type: str = _JSON

    @classmethod
    def of(cls, status: HTTPStatus, content: object) -> "_HttpAnswer":
        return cls(status, msgspec.json.encode(content) + b"\n")


class Health(msgspec.Struct, frozen=True):
    """Sources of the health endpoint.

    Attributes:
        silent: returns the parts that have been silent for too long, as text.
        not_ready: returns why it does not work; None if it does.
        status: returns the full status, served as JSON.
        open_metrics: opens the metrics page, once; raises `UnsupportedFeature` without an exporter.
    """

    silent: Callable[[], list[str]]
    not_ready: Callable[[], str | None]
    status: Callable[[], object]
    open_metrics: Callable[[], Exporter]


@asynccontextmanager
async def serving(address: Address, health: Health) -> AsyncGenerator[Address]:
    """Serve `health` inside the context; yields the address, with the port that the system chose for port 0.

    Raises:
        InvalidOption: the address cannot be bound.
    """
    pages = _Pages(health)
    try:
        if address.path:
            # Left by a killed process.
            _unlink(address.path)
            server = await asyncio.start_unix_server(pages.serve, address.path, limit=_MOST_HEADERS)
        else:
            server = await asyncio.start_server(pages.serve, address.host, address.port, limit=_MOST_HEADERS)
    except OSError as error:
        raise InvalidOption(f"health cannot be served at {address}: {error.strerror or error}") from error
    if not address.path:
        address = Address(host=address.host, port=server.sockets[0].getsockname()[1])
    _log.info("health at %s", address)
    try:
        yield address
    finally:
        server.close()
        if address.path:
            _unlink(address.path)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).unlink()


class _Pages:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._exporter: Exporter | None = None
        self._connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._connections += 1
        try:
            if self._connections <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_PATIENCE):
                    writer.write(self._response(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # A malformed request gets no response.
            pass
        finally:
            self._connections -= 1
            writer.close()

    def _response(self, request: bytes) -> bytes:
        first, *rest = request.decode("latin-1").split("\r\n")
        method, _, target = first.partition(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if method in ("GET", "HEAD"):
            answer = self._answer(target.partition(" ")[0].partition("?")[0], headers.get("accept", ""))
        else:
            answer = _HttpAnswer.of(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "only GET and HEAD"})
        head = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode("latin-1") + (b"" if method == "HEAD" else answer.body)

    def _answer(self, path: str, accept: str) -> _HttpAnswer:
        match path:
            case "/live":
                silent = self._health.silent()
                return _verdict("live", "; ".join(silent) if silent else None)
            case "/ready":
                return _verdict("ready", self._health.not_ready())
            case "/status":
                return _HttpAnswer.of(HTTPStatus.OK, self._health.status())
            case "/metrics":
                return self._metrics(accept)
            case _:
                return _HttpAnswer.of(
                    HTTPStatus.NOT_FOUND, {"error": "there are /live, /ready, /status and /metrics"}
                )

    def _metrics(self, accept: str) -> _HttpAnswer:
        try:
            if self._exporter is None:
                self._exporter = self._health.open_metrics()
        except UnsupportedFeature as error:
            return _HttpAnswer.of(HTTPStatus.NOT_FOUND, {"error": str(error)})
        page = self._exporter(accept)
        return _HttpAnswer(HTTPStatus.OK, page.body, page.content_type)


def _verdict(what: str, reason: str | None) -> _HttpAnswer:
    if reason is None:
        return _HttpAnswer.of(HTTPStatus.OK, {what: True})
    return _HttpAnswer.of(HTTPStatus.SERVICE_UNAVAILABLE, {what: False, "reason": reason})
