"""Typical messages, alone and many at once: written on the fast path, confirmed by range."""

import asyncio

import pytest
from msgspec.structs import replace

from taskmq.errors import BrokerBlocked, EncodeError, PublishUnknown
from taskmq.testing.broker_suite.publish_many import app_message
from taskmq.testing.runner import case, eventually
from tests.integration.rabbitmq_case import CUT_OFF, RabbitMQCase
from tests.integration.raw_rabbitmq import Raw

pytestmark = pytest.mark.rabbitmq


class TestMany(RabbitMQCase):
    @case
    async def test_a_typical_message_is_as_legible_as_any_other(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        sent = app_message(queue, '{"task":"suite.task"}')

        await broker.publish(sent, timeout=10)

        asked = {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"}
        (seen,) = await self.http("POST", f"queues/{{vhost}}/{queue}/get", asked)
        seen["properties"]["headers"].pop("x-delivery-count", None)
        assert seen["payload"] == '{"task":"suite.task"}'
        assert seen["properties"] == {
            "app_id": "taskmq",
            "content_encoding": "utf-8",
            "content_type": "application/json",
            "correlation_id": sent.job_id,
            "delivery_mode": 2,
            "headers": {"x-taskmq-pub": 1},
            "message_id": sent.job_id,
            "timestamp": 1_700_000_000,
            "type": "suite.task",
        }

    @case
    async def test_the_broker_has_the_first_of_many_before_the_loop_iteration_ends(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "the channel is open")
        assert self.process_url is not None

        with Raw(self.process_url) as raw:
            sent = [broker.publish(app_message(queue, str(number), number), timeout=10) for number in range(100)]
            raw.wait_until(lambda: raw.ready(queue) > 90, "nearly all of them are there")

        assert not any(each.done() for each in sent)
        await asyncio.gather(*sent)
        await self.expect_only(broker, queue, "the channel is open", *map(str, range(100)))

    @case
    async def test_an_unencodable_message_harms_none_of_the_others(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        messages = [app_message(queue, str(number), number) for number in range(3)]
        messages[1] = replace(messages[1], task="\ud800")

        outcomes = await broker.publish_many(messages, timeout=10)

        assert [type(error) for error in outcomes] == [type(None), EncodeError, type(None)]
        await self.expect_only(broker, queue, "0", "2")

    @case
    async def test_a_written_message_without_an_answer_is_unknown_and_others_are_not_sent(self) -> None:
        broker = self.broker(CUT_OFF)
        queue = await self.queue(broker)
        await self.send(broker, queue, "the channel is open")
        self.proxy.stall(True)

        outcomes = await broker.publish_many([app_message(queue, "x", number) for number in range(1500)], timeout=0.4)

        assert [type(error) for error in outcomes] == [PublishUnknown] * 1000 + [BrokerBlocked] * 500
        self.proxy.stall(False)
        await self.send(broker, queue, "last")
        await self.expect_ready(broker, queue, 1002)


@pytest.mark.timeout(120)
class TestCuts(RabbitMQCase):
    deadline = 90

    @case
    async def test_each_of_many_interrupted_messages_arrives_under_its_own_id(self) -> None:
        sender, receiver = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(sender)
        await self.send(sender, queue, "the channel is open")
        inbox, _ = await self.consume(receiver, queue, prefetch=1000)
        self.proxy.stall(True)
        messages = [app_message(queue, str(number), number) for number in range(500)]
        sent = sender.publish_many(messages, timeout=60)
        await asyncio.sleep(0)

        self.proxy.cut()
        self.proxy.stall(False)

        assert await sent == [None] * 500
        wanted = {one.body: one.job_id for one in messages}

        async def missing() -> int:
            return len(wanted.keys() - {delivery.body for delivery in inbox.deliveries})

        await eventually(missing, 0, within=20)
        seen = [delivery for delivery in inbox.deliveries if delivery.body in wanted]
        assert all(delivery.message_id == wanted[delivery.body] for delivery in seen)
        assert any("x-taskmq-republished" in delivery.headers for delivery in seen)
