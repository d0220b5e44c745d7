"""The contract of `taskmq.broker`, on a real node, and twice more where the way of the bytes differs."""

import asyncio

import pytest
import uvloop

from taskmq.testing.broker_suite import BrokerSuite
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case, eventually
from tests.integration.rabbitmq_case import RabbitMQCase

pytestmark = pytest.mark.rabbitmq


class _OnRabbitMQ(RabbitMQCase, BrokerSuite):
    # What quorum queues do otherwise than the suite expects.

    @case
    async def test_what_is_held_is_nobody_else_s(self) -> None:
        # What two holders give back is in front again in the order in which they gave it back.
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abc")

        async with broker.hold(queue, limit=2), other.hold(queue, limit=10) as rest:
            assert bodies(rest) == ["c"]

        await self.expect_ready(broker, queue, 3)
        await self.expect_only(broker, queue, *"cab")

    @case
    async def test_stats_count_ready_messages_consumers_and_what_they_hold(self) -> None:
        # A consumer that was cancelled is counted until what it holds is settled.
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        async def counted() -> list[tuple[int, int]]:
            return [(stats.ready, stats.consumers) for stats in await broker.stats([queue])]

        inbox, consumer = await self.consume(broker, queue, prefetch=2)
        held = await inbox.take(2)
        await eventually(counted, [(3, 1)], within=self.patience)
        await consumer.stop()
        for delivery in held:
            delivery.ack()
        await eventually(counted, [(3, 0)], within=self.patience)


class TestRabbitMQ(_OnRabbitMQ):
    pass


@pytest.mark.slow
class TestRabbitMQWithUvloop(_OnRabbitMQ):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return uvloop.new_event_loop()


@pytest.mark.slow
class TestRabbitMQWithPlainWrites(_OnRabbitMQ):
    options = "?wire=plain"
