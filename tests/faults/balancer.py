"""A small load balancer: it sends each request to a server that reports ready, and repeats none."""

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.servers.ports import PortLease

_POLL = 0.1
_LIVE = 10.0


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    """Send a request and read its answer: the status, and the complete body."""
    writer.write(request)
    head, body = await _message(reader)
    return int(head.split(b" ", 2)[1]), head + body


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head, await reader.readexactly(length)


class Balancer:
    """Listens on its own port, in its own thread, for the servers at other ports; a context manager.

    Attributes:
        ready: the ports of the servers that were ready at their last check.
        refused: requests for which no server was ready.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.ready: set[int] = set()
        self.refused: int = 0
        self._ports = ports
        self._turn = 0
        self._lease = PortLease(1)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    @property
    def port(self) -> int:
        (port,) = self._lease.ports
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_LIVE)
        self._loop.close()
        self._lease.close()

    async def _run(self) -> None:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        polls = [asyncio.create_task(self._poll(port)) for port in self._ports]
        async with listener:
            await self._stop.wait()
        for poll in polls:
            poll.cancel()
        await asyncio.wait(polls)

    async def _poll(self, port: int) -> None:
        request = b"GET /api/v1/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        while True:
            status = 0
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                async with asyncio.timeout(_LIVE):
                    status, _ = await self._ask(port, request)
            (self.ready.add if status == 200 else self.ready.discard)(port)
            await asyncio.sleep(_POLL)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head, body = await _message(reader)
                if not self.ready:
                    self.refused += 1
                    break
                self._turn += 1
                port = sorted(self.ready)[self._turn % len(self.ready)]
                _, answer = await self._ask(port, head + body)
                # The client does not care which server it was, and whether that one stays.
                writer.write(answer.replace(b"connection: close\r\n", b""))
        writer.close()

    async def _ask(self, port: int, request: bytes) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await exchange(reader, writer, request)
        finally:
            writer.close()
