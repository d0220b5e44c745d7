"""Messages like most, alone and many at once: written in the short way, confirmed by the range."""

import asyncio
from dataclasses import replace

import pytest

from taskmq.broker import Outgoing, PublishingMany
from taskmq.envelope import new_job_id
from taskmq.errors import BrokerBlocked, BrokerUnavailable, EncodeError, PublishUnknown, TooLarge, Unroutable
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.runner import case, eventually
from tests.integration.rabbitmq_case import CUT_OFF, RabbitMQCase

pytestmark = pytest.mark.rabbitmq

_SENT_AT = 1_700_000_000_123


def usual(queue: str, text: str | bytes, number: int = 0) -> Outgoing:
    """A message as an app makes it."""
    return replace(message(queue, text), job_id=new_job_id(_SENT_AT, number.to_bytes(10)), enqueued=_SENT_AT)


class TestMany(RabbitMQCase):
    @case
    async def test_a_message_like_most_is_as_legible_as_any_other(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        sent = usual(queue, '{"task":"suite.task"}')

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
    async def test_each_of_many_is_told_its_own_fate(self) -> None:
        broker = self.broker()
        assert isinstance(broker, PublishingMany)
        queue = await self.queue(broker)
        messages = [usual(queue if number % 3 else "gone", str(number), number) for number in range(300)]
        messages[1] = usual(queue, bytes(broker.max_message_bytes + 1), 1)
        messages[2] = replace(messages[2], task="\ud800")

        outcomes = await broker.publish_many(messages, timeout=10)

        assert type(outcomes[1]) is TooLarge
        assert type(outcomes[2]) is EncodeError
        assert {type(error) for error in outcomes[::3]} == {Unroutable}
        fine = [number for number in range(3, 300) if number % 3]
        assert [outcomes[number] for number in fine] == [None] * len(fine)
        await self.expect_only(broker, queue, *map(str, fine))

    @case
    async def test_none_are_sent_at_once(self) -> None:
        assert await self.broker().publish_many([], timeout=10) == []

    @case
    async def test_more_than_the_window_goes_out_in_order(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        # Waiting ones, those with headers and large ones go the long way, and keep their place.
        messages = [usual(queue, str(number), number) for number in range(3000)]
        messages[7] = replace(messages[7], headers={"note": "7"})
        messages[9] = replace(messages[9], job_id="nine")
        messages[11] = replace(messages[11], due=1)

        assert await broker.publish_many(messages, timeout=30) == [None] * 3000

        inbox, _ = await self.consume(broker, queue, prefetch=500)
        assert bodies(await inbox.take_and_ack(3000)) == [str(number) for number in range(3000)]

    @case
    async def test_written_without_an_answer_is_unknown_and_not_written_is_not_sent(self) -> None:
        broker = self.broker(CUT_OFF)
        queue = await self.queue(broker)
        await self.send(broker, queue, "the channel is open")
        self.proxy.stall(True)

        outcomes = await broker.publish_many([usual(queue, "x", number) for number in range(1500)], timeout=0.4)

        assert [type(error) for error in outcomes] == [PublishUnknown] * 1000 + [BrokerBlocked] * 500
        self.proxy.stall(False)
        await self.send(broker, queue, "last")
        await self.expect_ready(broker, queue, 1002)

    @case
    async def test_a_closed_broker_sends_none_of_them(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one")
        await broker.aclose()

        outcomes = await broker.publish_many([usual(queue, "two", 2), usual(queue, "three", 3)], timeout=10)

        assert [type(error) for error in outcomes] == [BrokerUnavailable] * 2

    @case
    async def test_whoever_waits_no_more_takes_nothing_back(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        broker.publish_many([usual(queue, "one", 1), usual(queue, "two", 2)], timeout=10).cancel()

        await self.send(broker, queue, "three")
        await self.expect_only(broker, queue, "one", "two", "three")


@pytest.mark.timeout(120)
class TestCuts(RabbitMQCase):
    deadline = 90

    @case
    async def test_of_many_that_are_cut_off_each_arrives_under_its_own_id(self) -> None:
        sender, receiver = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(sender)
        await self.send(sender, queue, "the channel is open")
        inbox, _ = await self.consume(receiver, queue, prefetch=1000)
        self.proxy.stall(True)
        messages = [usual(queue, str(number), number) for number in range(500)]
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
