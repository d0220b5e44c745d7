"""A connection that is closed while it is being opened."""

import asyncio
import contextlib

import pytest

from taskmq_rabbitmq.amqp.fast_connection import AmqpConnection
from taskmq_rabbitmq.amqp.pika_types import ConnectionParameters, PlainCredentials, silence_pika
from tests.servers.ports import PortLease

# One attempt at an address takes fewer turns of the loop.
_TURNS = range(12)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence_pika()


async def _abandon(port: int, after: int) -> None:
    """Start to open a connection, close it after that many turns of the loop, and wait for the end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[BaseException] = loop.create_future()
    amqp = AmqpConnection(
        ConnectionParameters(
            host="127.0.0.1",
            port=port,
            virtual_host="/",
            credentials=PlainCredentials("guest", "guest"),
            heartbeat=60,
            ssl_options=None,
            client_properties={},
            connection_attempts=1,
            socket_timeout=5,
            stack_timeout=10,
        ),
        loop=loop,
        wire="fast",
        on_open=lambda _: None,
        on_open_error=lambda _, error: ended.set_result(error),
        on_close=lambda _, error: ended.set_result(error),
    )
    for _ in range(after):
        await asyncio.sleep(0)
    if not amqp.is_closed:
        amqp.close()
    await ended
    # An attempt that was not abandoned would go on now.
    for _ in range(4 * _TURNS.stop):
        await asyncio.sleep(0)


@pytest.mark.real_time
@pytest.mark.parametrize("turns", _TURNS)
async def test_an_attempt_abandoned_at_any_turn_raises_nothing_in_the_loop(turns: int) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    with PortLease(1) as lease:
        (port,) = lease.ports
        await _abandon(port, turns)

    assert complaints == []


@pytest.mark.real_time
@pytest.mark.parametrize("turns", _TURNS)
async def test_an_attempt_abandoned_at_any_turn_leaves_no_socket_open(turns: int) -> None:
    ends: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        ends.append(task)
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(100):
                pass
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await _abandon(port, turns)
        done = await asyncio.wait_for(asyncio.gather(*ends), 10)

    assert done == [None] * len(ends)
