"""A server on a real socket: slow clients do not affect others, and it stops without losing a request.

Tests advance the loop's clock past a limit, so that no limit ends while the machine is busy.
"""

import asyncio
import json
import re
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import pytest
from litestar.connection import ASGIConnection

from taskmq import TaskMQ
from taskmq.errors import InvalidSetting
from taskmq.model.identity import Identity
from taskmq.model.telemetry.events import JobEvent
from taskmq.server import ServerApplication, ServerSettings
from taskmq.server.process import ServerProcess
from taskmq.server.process.connections import OpenConnections, descriptors
from taskmq_embedded.work import Care
from tests.servers.waiting import until
from tests.unit.app_kit import new_url
from tests.unit.server.kit import CALLERS, build_served, define

_PATIENCE = 60.0
_LONG = timedelta(days=1)


class _Loop(asyncio.SelectorEventLoop):
    """A loop with a clock that can be advanced; due timers fire at once."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class Served:
    """A listening server in this loop."""

    def __init__(self, application: ServerApplication, process: ServerProcess, port: int) -> None:
        self.application = application
        self.process = process
        self.port = port

    def pass_by(self, seconds: float) -> None:
        """Advance the clock of the loop."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        loop.ahead += seconds

    async def pass_until(self, check: Callable[[], bool], what: str, *, every: float) -> None:
        """Advance the clock by that many seconds until the condition holds; pending work runs first."""

        async def look() -> bool:
            assert (await self.ask("/api/v1/health/live"))[0] == 200
            self.pass_by(every)
            await asyncio.sleep(0)
            return check()

        await until(look, what, within=_LONG)

    async def connect(self) -> "Connection":
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, path: str, *, body: bytes | None = None) -> tuple[int, dict[str, str], Any]:
        """Send a request over a new connection; a POST if there is a body."""
        async with await self.connect() as connection:
            return await connection.ask(path, body=body)


class Connection:
    """A connection to the server, controlled by the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, path: str, *, body: bytes | None = None) -> tuple[int, dict[str, str], Any]:
        await self.send(_head("GET", path) + b"\r\n" if body is None else _post(path, body))
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers, json.loads(body or b"null")

    async def read_to_end(self) -> bytes:
        """Read until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


def _head(method: str, path: str, more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all-admin\r\n{more}".encode()


def _post(path: str, body: bytes) -> bytes:
    return _head("POST", path, f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n") + b"\r\n" + body


def _run(folder: Path, test: Callable[[Served], Awaitable[None]], **settings: Any) -> None:
    async def identify(connection: ASGIConnection[Any, Any, Any, Any]) -> Identity:
        return CALLERS[connection.headers["authorization"].removeprefix("Bearer ")]

    async def main() -> None:
        app = TaskMQ(new_url(), store=f"sqlite:///{folder}/jobs.db?synchronous=normal")
        define(app)
        chosen = ServerSettings(port=0, rate=0, **settings)
        application = build_served(app, identify=identify, settings=chosen)
        process = ServerProcess(application, chosen)
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(process.run(on_ready=ready.set_result))
        address = await ready
        try:
            await test(Served(application, process, int(address.rpartition(":")[2])))
        finally:
            process.stop()
            process.stop()
            await running

    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(main())


def test_a_slow_read_is_given_up_and_a_slow_write_is_not(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        store: Any = served.application.litestar.state["app"].sessions.store()
        held, free = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def hold(_: object) -> None:
            loop.call_soon_threadsafe(held.set)
            assert free.wait(_PATIENCE)

        await store.count_jobs()
        holding = asyncio.create_task(store._reader.call(hold, care=Care.READ))
        await held.wait()

        async def ask_until_abandoned(path: str, *, body: bytes | None = None) -> tuple[int, dict[str, str], Any]:
            asking = asyncio.create_task(served.ask(path, body=body))
            await served.pass_until(asking.done, "an answer", every=30.0)
            return asking.result()

        status, headers, problem = await ask_until_abandoned("/api/v1/jobs/count")
        assert (status, problem["code"]) == (503, "query_too_slow")
        assert headers["content-type"] == "application/problem+json"
        trial = b'{"action": "hold", "filter": "status:held", "dry_run": true}'
        status, _, problem = await ask_until_abandoned("/api/v1/bulk", body=trial)
        assert (status, problem["code"]) == (503, "query_too_slow")
        # A started answer continues.
        async with await served.connect() as stream:
            await stream.send(_head("GET", "/api/v1/events") + b"\r\n")
            await stream.reader.readuntil(b"retry: 3000")
            assert (await ask_until_abandoned("/api/v1/jobs/count"))[0] == 503
            assert not stream.reader.at_eof()
        async with await served.connect() as writing:
            await writing.send(_post("/api/v1/jobs", b'{"job_type": "data_processing"}'))
            assert (await ask_until_abandoned("/api/v1/jobs/count"))[0] == 503
            free.set()
            assert (await writing.answer())[0] == 201
        await holding
        assert (await served.ask("/api/v1/jobs/count"))[2] == {"count": 1, "is_exact": True}

    _run(tmp_path, test, query_time=30.0, request_seconds=3600.0)


def test_an_incomplete_request_times_out_and_affects_only_its_own_connection(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        begun = [
            b"",
            b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n",
            _head("POST", "/api/v1/jobs", "Content-Length: 100\r\nContent-Type: application/json\r\n\r\n") + b"{",
        ]
        async with AsyncExitStack() as stack:
            slow = [await stack.enter_async_context(await served.connect()) for _ in range(60)]
            for number, connection in enumerate(slow):
                await connection.send(begun[number % 3])
            idle = await stack.enter_async_context(await served.connect())
            assert (await idle.ask("/api/v1/health/live"))[0] == 200
            served.pass_by(6.0)
            # A slow trickle gets no more time than the others.
            await slow[1].send(b"X-Slow: 1\r\n")
            assert (await served.ask("/api/v1/jobs"))[0] == 200
            served.pass_by(6.0)

            assert (await served.ask("/api/v1/jobs"))[0] == 200
            for connection in slow:
                assert b" 200 " not in await connection.read_to_end()
            assert (await served.ask("/api/v1/jobs"))[2] == []
            # Between two requests a connection may be idle for longer.
            assert (await idle.ask("/api/v1/health/live"))[0] == 200
            assert served.application.status().failed == 0

    _run(tmp_path, test, request_seconds=12.0)


_PIPELINED = 40


async def _unread(served: Served, requests: int) -> socket.socket:
    """Open a connection that requests something large that often and reads nothing.

    Neither system buffers much of the answers.
    """
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    taken = served.process._server.server_state.connections
    before = {*taken}
    await loop.sock_connect(deaf, ("127.0.0.1", served.port))
    await until(lambda: bool(taken - before), "the connection")
    for new in taken - before:
        other: socket.socket = cast("Any", new).transport.get_extra_info("socket")
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    await loop.sock_sendall(deaf, (_head("GET", "/api/openapi.json") + b"\r\n") * requests)
    return deaf


def test_a_client_that_reads_nothing_is_disconnected_however_many_requests_it_sends(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        state = served.process._server.server_state
        deaf = [await _unread(served, _PIPELINED) for _ in range(5)]
        await until(lambda: len(state.connections) == 5, "connections of clients that read nothing")

        assert (await served.ask("/api/v1/health/live"))[0] == 200

        def have_ended() -> bool:
            served.pass_by(30.0)
            return not state.connections and not state.tasks

        await until(have_ended, "their end", within=_LONG)
        for one in deaf:
            one.close()

    _run(tmp_path, test, request_seconds=30.0)


def test_idle_connections_are_closed_for_new_ones_with_the_quietest_first(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        opened = served.process._server.server_state.connections
        async with AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(await served.connect()) for _ in range(10)]
            deaf = [await _unread(served, _PIPELINED) for _ in range(3)]
            kept = await stack.enter_async_context(await served.connect())
            for _ in range(25):
                await stack.enter_async_context(await served.connect())
                # The most recently used connection is closed last.
                assert (await kept.ask("/api/v1/health/live"))[0] == 200
                assert (await served.ask("/api/v1/health/ready"))[0] == 200
                assert len(opened) <= 20
            for connection in silent:
                assert await connection.read_to_end() == b""
            for one in deaf:
                one.close()

    _run(tmp_path, test, connections=20)


def test_a_server_with_only_busy_connections_accepts_no_more(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        async with AsyncExitStack() as stack:
            for _ in range(3):
                stream = await stack.enter_async_context(await served.connect())
                await stream.send(_head("GET", "/api/v1/events") + b"\r\n")
                await stream.reader.readuntil(b"retry: 3000")
            async with await served.connect() as refused:
                assert await refused.read_to_end() == b""

    _run(tmp_path, test, connections=3)


def test_a_client_that_reads_slowly_gets_its_whole_answer(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        loop = asyncio.get_running_loop()
        slow = await _unread(served, 1)
        found, size, taken = bytearray(), 0, 0
        while not size or len(found) < size:
            # Less than one transfer, again and again.
            found += await loop.sock_recv(slow, 2_048)
            if not size and b"\r\n\r\n" in found:
                head, _, _ = bytes(found).partition(b"\r\n\r\n")
                (length,) = re.findall(rb"content-length: (\d+)", head)
                size = len(head) + 4 + int(length)
            if len(found) - taken >= 65_536:
                taken = len(found)
                assert (await served.ask("/api/v1/health/live"))[0] == 200
                served.pass_by(30.0)
        slow.close()

        assert taken > 0

        assert b" 200 " in found[:20]
        assert json.loads(found.partition(b"\r\n\r\n")[2])["openapi"].startswith("3.1")

    _run(tmp_path, test, request_seconds=30.0)


def test_connections_leave_some_file_descriptors_free() -> None:
    class Quiet:
        cuts: ClassVar[list[Any]] = []

        def is_waiting(self) -> bool:
            return True

        def cut(self) -> None:
            self.cuts.append(self)
            opened.remove(cast("Any", self))

    opened = OpenConnections(10_000, descriptors=130)
    first, second, third = (cast("Any", Quiet()) for _ in range(3))
    opened.add(first)
    opened.add(second)
    opened.touch(first)
    opened.add(third)
    opened.touch(second)

    assert (len(opened), Quiet.cuts) == (2, [second])
    assert descriptors() == descriptors() >= 256


def test_an_answer_does_not_wait_for_tcp_acknowledgements(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        async with await served.connect() as connection:
            await connection.ask("/api/v1/health/live")
            (taken,) = served.process._server.server_state.connections
            transport: asyncio.Transport = taken.transport

            found: socket.socket = transport.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    _run(tmp_path, test)


def test_an_unread_stream_delays_no_other_and_buffers_little(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        hub = served.application.litestar.state["events"]
        async with AsyncExitStack() as stack:
            unread = await stack.enter_async_context(await served.connect())
            deaf: socket.socket = unread.writer.get_extra_info("socket")
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            unread.writer.transport.pause_reading()  # type: ignore[attr-defined]
            read = await stack.enter_async_context(await served.connect())
            await unread.send(_head("GET", "/api/v1/events") + b"\r\n")
            await read.send(_head("GET", "/api/v1/events?job_id=last") + b"\r\n")
            while hub.streams < 2:
                await asyncio.sleep(0)

            for number in range(200):
                for _ in range(100):
                    hub._publish(
                        JobEvent(event="dead", number=1, at=1, job_id=f"{number}", task="t" * 400, queue="q")
                    )
                assert (await served.ask("/api/v1/health/live"))[0] == 200
            hub._publish(JobEvent(event="dead", number=1, at=1, job_id="last", task="t", queue="q"))

            async with asyncio.timeout(_PATIENCE):
                assert b'"job_id":"last"' in await read.reader.readuntil(b'"last"')
            (waiting,) = [inbox for inbox in hub._subscriptions if inbox.missed]
            assert len(waiting._waiting) <= 1_000

    _run(tmp_path, test)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n",
        b"GET /x HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 50_000,
    ],
)  # fmt: skip
def test_a_request_that_is_not_http_is_refused_and_the_server_continues(tmp_path: Path, data: bytes) -> None:
    async def test(served: Served) -> None:
        async with await served.connect() as connection:
            try:
                await connection.send(data)
                connection.writer.write_eof()
                ended = asyncio.create_task(connection.read_to_end())
                await served.pass_until(ended.done, "the end of the connection", every=30.0)
                said = ended.result()
            except ConnectionError:
                said = b""

        assert said[:12] in {b"", b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 413"}, said[:200]
        assert b"Traceback" not in said
        assert (await served.ask("/api/v1/health/live"))[0] == 200

    _run(tmp_path, test, request_seconds=30.0)


def test_a_draining_server_says_so_and_serves_until_its_time_is_over(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        async with await served.connect() as connection:
            before = await connection.ask("/api/v1/health/ready")
            served.process.stop()
            status, headers, body = await connection.ask("/api/v1/health/ready")

            assert (before[0], "connection" in before[1]) == (200, False)
            assert (status, headers["connection"], body["status"]) == (503, "close", "not ready")
            assert await connection.read_to_end() == b""
        # Others still connect and are served.
        assert (await served.ask("/api/v1/jobs"))[0] == 200
        assert served.application.not_ready() == "it is stopping"

    _run(tmp_path, test, drain=600.0)


def test_a_limit_of_zero_connections_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="connections 0"):
        ServerSettings(connections=0)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_an_invalid_drain_time_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidSetting, match="drain"):
        ServerSettings(drain=seconds)
