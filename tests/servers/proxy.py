"""A TCP proxy that breaks connections like a network."""

import asyncio
import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from tests.servers.ports import PortLease

T = TypeVar("T")

_CHUNK = 65536
# Data in transit in one direction, with its arrival time; empty data is the end.
_InTransit = asyncio.Queue[tuple[float, bytes]]
_NEVER = float("inf")
# Lingering for zero seconds makes a close a reset.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(eq=False)
class _Way:
    """A direction of one connection.

    Attributes:
        to_client: the direction.
        in_transit: data read and not yet written.
        left: number of bytes before the connection is reset.
        is_dead: its data never arrives.
    """

    to_client: bool
    in_transit: _InTransit = field(default_factory=lambda: _InTransit(maxsize=64))
    left: float = _NEVER
    is_dead: bool = False


class TcpProxy:
    """Forwards 127.0.0.1:`port` to a port of this machine, in its own thread; a context manager.

    Its methods may be called from any thread; they have taken effect when they return.
    """

    def __init__(self, target_port: int, *, target_host: str = "127.0.0.1") -> None:
        self.target_port = target_port
        self.target_host = target_host
        self._lease = PortLease(1)
        self._latency = 0.0
        self._links: set[asyncio.Task[bool]] = set()
        self._ways: set[_Way] = set()
        self._flowing = {to_client: asyncio.Event() for to_client in (False, True)}
        for flowing in self._flowing.values():
            flowing.set()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)

    @property
    def port(self) -> int:
        (port,) = self._lease.ports
        return port

    @property
    def connections(self) -> int:
        """Return the number of connected clients."""
        return len(self._links)

    @property
    def latency(self) -> float:
        """Delay every byte by that many seconds in each direction, from now on."""
        return self._latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self._latency = seconds

    def start(self) -> Self:
        self._thread.start()
        self._call(self._listen)
        return self

    def cut(self) -> None:
        """Reset every connection; new ones are accepted."""
        self._call(self._cut)

    def refuse(self, refused: bool) -> None:
        """Refuse new connections, or accept them again; existing ones continue."""
        self._call(self._stop_listening if refused else self._listen)

    def stall(self, stalled: bool) -> None:
        """Block all data in both directions, without closing anything; it is delivered afterwards."""

        self._call(functools.partial(self._stall, stalled, (False, True)))

    def hold_answers(self, held: bool) -> None:
        """Block all data to the clients, while the server still receives theirs; it is delivered afterwards."""
        self._call(functools.partial(self._stall, held, (True,)))

    def strand(self) -> None:
        """Let every connection die silently: no data on existing ones ever arrives."""

        async def strand() -> None:
            for way in self._ways:
                way.is_dead = True

        self._call(strand)

    def tear(self, count: int | None) -> None:
        """Reset every connection in the middle, as soon as `count` more bytes have passed in one direction.

        None: the remaining ones stay.
        """

        async def tear() -> None:
            for way in self._ways:
                way.left = _NEVER if count is None else count

        self._call(tear)

    def inject(self, noise: bytes, *, to_client: bool) -> None:
        """Insert bytes into every connection, between those of the other side."""

        async def inject() -> None:
            for way in self._ways:
                if way.to_client is to_client:
                    with contextlib.suppress(asyncio.QueueFull):  # no data passes there anyway
                        way.in_transit.put_nowait((self._loop.time(), noise))

        self._call(inject)

    def close(self) -> None:
        """Reset every connection and end the thread; may be called twice."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._call(self._stop_listening)
            self._call(self._cut)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._lease.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, function: Callable[[], Coroutine[None, None, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(timeout=10)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    async def _stall(self, stalled: bool, ways: tuple[bool, ...]) -> None:
        for to_client in ways:
            if stalled:
                self._flowing[to_client].clear()
            else:
                self._flowing[to_client].set()

    async def _cut(self) -> None:
        if self._listener is not None:
            # A connection made before the cut is cut, even if the kernel has only just reported it.
            self._accept(self._listener)
        links = [*self._links]
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = listener.accept()
                ends = [client]
                link = self._loop.create_task(self._serve(ends))
                self._links.add(link)
                # Not a `finally` inside the task: one that is cancelled before its first step has none.
                link.add_done_callback(functools.partial(self._end, ends))

    def _end(self, ends: list[socket.socket], link: "asyncio.Task[bool]") -> None:
        self._links.discard(link)
        is_orderly = not link.cancelled() and link.result()
        for end in ends:
            if not is_orderly:
                with contextlib.suppress(OSError):  # some systems refuse it on a socket that was reset
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            end.close()

    async def _serve(self, ends: list[socket.socket]) -> bool:
        """Carry bytes both ways until both have ended; return False if one side was reset or cannot be reached."""
        client, target = ends[0], socket.socket()
        ends.append(target)
        for end in ends:
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await self._loop.sock_connect(target, (self.target_host, self.target_port))
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._forward(client, target, _Way(to_client=False)))
                both_ways.create_task(self._forward(target, client, _Way(to_client=True)))
        except* OSError:
            is_orderly = False
        else:
            is_orderly = True
        return is_orderly

    async def _forward(self, source: socket.socket, sink: socket.socket, way: _Way) -> None:
        """Carry bytes one way until they end; then pass on the end."""
        self._ways.add(way)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._collect(source, way))
                group.create_task(self._deliver(way, sink))
        finally:
            self._ways.discard(way)

    async def _collect(self, source: socket.socket, way: _Way) -> None:
        chunk = b"-"
        while chunk:
            chunk = await self._loop.sock_recv(source, _CHUNK)
            await way.in_transit.put((self._loop.time() + self._latency, chunk))

    async def _deliver(self, way: _Way, sink: socket.socket) -> None:
        chunk = b"-"
        while chunk:
            due, chunk = await way.in_transit.get()
            await asyncio.sleep(due - self._loop.time())
            await self._flowing[way.to_client].wait()
            if way.is_dead:
                continue
            torn = len(chunk) >= way.left
            await self._loop.sock_sendall(sink, chunk[: int(way.left)] if torn else chunk)
            way.left -= len(chunk)
            if torn:
                raise ConnectionResetError
        if not way.is_dead:
            sink.shutdown(socket.SHUT_WR)
