"""A loop blocked by user code: data of the broker is read before any timeout is judged."""

import asyncio
import logging
import os
import time
from collections.abc import Callable

import pytest
import uvloop

from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription
from taskmq.model.topology import WorkQueue
from taskmq.testing.broker_suite import message
from taskmq_rabbitmq import RabbitMQBroker, open_broker

pytestmark = pytest.mark.rabbitmq

# RabbitMQ closes a connection after two heartbeats of silence at the earliest; ours are sent every eighth of one.
HEARTBEAT = int(os.environ.get("TASKMQ_TEST_HEARTBEAT", "2"))
LONGEST = 1.875 * HEARTBEAT - 0.2
QUEUE = "work"
LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]


def _broker(url: str) -> RabbitMQBroker:
    broker = open_broker(f"{url}?heartbeat={HEARTBEAT}", BrokerOptions(name="test"))
    assert isinstance(broker, RabbitMQBroker)
    return broker


@LOOPS
@pytest.mark.timeout(60 + 4 * HEARTBEAT)
def test_a_loop_blocked_for_nearly_two_heartbeats_keeps_its_connections(
    amqp_url: str, loop_factory: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker = _broker(amqp_url)
        got: asyncio.Queue[Delivery] = asyncio.Queue()
        await broker.declare([WorkQueue(QUEUE)])
        consumer = await broker.consume([Subscription(QUEUE, 10)], got.put_nowait)
        await broker.publish(message(QUEUE, "before"), timeout=10)
        held = await got.get()

        await asyncio.sleep(0.3 * HEARTBEAT)
        time.sleep(LONGEST)
        await asyncio.sleep(0.2 * HEARTBEAT)

        assert consumer.healthy
        held.ack()
        await broker.publish(message(QUEUE, "after"), timeout=10)
        assert (await got.get()).body == message(QUEUE, "after").body
        assert broker.stale_settles == 0
        await broker.aclose()

    caplog.set_level(logging.INFO)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert "connection lost" not in caplog.text


@LOOPS
@pytest.mark.parametrize("is_on_its_way", [True, False], ids=["confirmed meanwhile", "not yet on its way"])
def test_a_send_whose_deadline_passes_while_the_loop_is_blocked_is_not_unknown(
    amqp_url: str, loop_factory: Loop, *, is_on_its_way: bool
) -> None:
    async def main() -> None:
        broker = _broker(amqp_url)
        await broker.declare([WorkQueue(QUEUE)])
        await broker.publish(message(QUEUE, "the channel is open"), timeout=10)

        futures = [broker.publish(message(QUEUE, str(number)), timeout=0.5) for number in range(200)]
        if is_on_its_way:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        time.sleep(1)
        await asyncio.wait(futures)

        assert [future.exception() for future in futures] == [None] * 200
        await broker.aclose()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@LOOPS
def test_an_answer_received_while_the_loop_was_blocked_counts(amqp_url: str, loop_factory: Loop) -> None:
    async def main() -> None:
        broker = _broker(amqp_url)
        await broker.declare([WorkQueue(QUEUE)])
        channel = await broker._open().sending.channel()

        asked = asyncio.ensure_future(
            channel.request(lambda done: channel.raw.queue_declare(QUEUE, passive=True, callback=done), timeout=0.5)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        time.sleep(1)

        assert (await asked).message_count == 0
        channel.close()
        await broker.aclose()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
