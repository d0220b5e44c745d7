import asyncio
import logging
import select
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from taskmq.testing.runner import eventually
from taskmq_rabbitmq.amqp.direct_socket import DirectSocket
from taskmq_rabbitmq.amqp.pika_types import IOServices, PlainTransport
from taskmq_rabbitmq.amqp.resets import detect_resets

pytestmark = pytest.mark.real_time

logging.getLogger("pika").setLevel(logging.CRITICAL)


class Receiver:
    """Records the callbacks of pika about a socket."""

    def __init__(self) -> None:
        self.received = b""
        self.is_over = False
        self.lost: list[BaseException | None] = []

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.is_over = True
        return False

    def connection_lost(self, error: BaseException | None) -> None:
        self.lost.append(error)


class Line:
    """A transport of pika with a direct socket, and the other end of the socket."""

    def __init__(self, ours: socket.socket, other: socket.socket) -> None:
        self.other = other
        self.receiver = Receiver()
        make: Any = PlainTransport
        self.transport: Any = make(ours, self.receiver, IOServices(asyncio.get_running_loop()))
        shortcut = DirectSocket.to(self.transport)
        assert shortcut is not None
        self.shortcut = shortcut


@asynccontextmanager
async def line() -> AsyncGenerator[Line, None]:
    ours, other = socket.socketpair()
    with ours, other:
        ours.setblocking(False)
        other.setblocking(False)
        made = Line(ours, other)
        try:
            yield made
        finally:
            if not made.receiver.lost:
                made.transport.abort()
            await eventually(lambda: _is(bool(made.receiver.lost)), True, within=5)


async def _is(truth: bool) -> bool:
    return truth


async def test_writes_are_sent_before_the_loop_continues() -> None:
    async with line() as made:
        assert made.shortcut.send(b"frames") == b""
        assert made.other.recv(100) == b"frames"


async def test_unsent_bytes_take_the_slow_path_in_order() -> None:
    async with line() as made:
        sent = bytes(range(256)) * 40_000
        rest = made.shortcut.send(sent)
        assert 0 < len(rest) < len(sent)
        made.transport.write(rest)

        # While bytes are waiting, nothing is written directly.
        assert made.shortcut.send(b"last") == b"last"
        made.transport.write(b"last")

        received = b""
        while len(received) < len(sent) + 4:
            received += await asyncio.get_running_loop().sock_recv(made.other, 2**20)
        assert received == sent + b"last"


async def test_received_bytes_are_passed_on() -> None:
    async with line() as made:
        made.other.send(b"a" * 100_000)
        await eventually(lambda: _is(len(made.receiver.received) == 100_000), True, within=5)


async def test_the_end_of_the_connection_is_reported() -> None:
    async with line() as made:
        made.other.close()
        await eventually(lambda: _is(bool(made.receiver.lost)), True, within=5)
        assert made.receiver.is_over


async def test_nothing_is_written_after_an_abort() -> None:
    async with line() as made:
        made.transport.abort()
        assert made.shortcut.send(b"late") == b"late"
        await eventually(lambda: _is(bool(made.receiver.lost)), True, within=5)
        assert made.shortcut.send(b"later") == b"later"
        assert made.other.recv(100) == b""


async def test_a_socket_error_is_left_to_pika() -> None:
    async with line() as made:
        made.other.close()
        assert made.shortcut.send(b"one") == b"one"
        made.transport.write(b"one")
        await eventually(lambda: _is(bool(made.receiver.lost)), True, within=5)


def test_other_transports_have_no_direct_socket() -> None:
    assert DirectSocket.to(object()) is None  # type: ignore[arg-type]


def torn_line() -> tuple[socket.socket, socket.socket]:
    """Open two ends over TCP, the only transport with resets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    ours.setblocking(False)
    return ours, other


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_short", [True, False], ids=["the shortcut", "pika's way"])
def test_a_reset_after_received_bytes_is_found_with_them(
    new_loop: Callable[[], asyncio.AbstractEventLoop], is_short: bool
) -> None:
    # uvloop no longer watches a socket with an error: a reset missed in that iteration is never reported.
    sent = bytes(300_000)

    async def body() -> None:
        ours, other = torn_line()
        with ours, other:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
            receiver = Receiver()
            make: Any = PlainTransport
            transport = make(ours, receiver, IOServices(asyncio.get_running_loop()))
            if is_short:
                assert DirectSocket.to(transport) is not None
            else:
                detect_resets(transport)
            other.sendall(sent)
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.close()
            broken = select.poll()
            broken.register(ours, 0)
            assert broken.poll(5000)

            await eventually(lambda: _is(bool(receiver.lost)), True, within=5)

        assert isinstance(receiver.lost[0], ConnectionResetError)

    loop = new_loop()
    try:
        loop.run_until_complete(body())
    finally:
        loop.close()
