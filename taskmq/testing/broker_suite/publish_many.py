"""Tests of publishing many messages at once: each has its own outcome, in order."""

import unittest

from msgspec.structs import replace

from taskmq.contracts.broker import Broker, Outgoing
from taskmq.contracts.broker_abilities import PublishingMany
from taskmq.errors import BrokerUnavailable, TooLarge, Unroutable
from taskmq.model.envelope import new_job_id
from taskmq.testing.broker_suite.case import BrokerCase, bodies, message
from taskmq.testing.runner import case

_SENT_AT = 1_700_000_000_123
_MANY = 3_000


def app_message(queue: str, text: str | bytes, number: int = 0) -> Outgoing:
    """Return a message as an app builds it."""
    return replace(message(queue, text), job_id=new_job_id(_SENT_AT, number.to_bytes(10)), enqueued=_SENT_AT)


class PublishingManyTests(BrokerCase):
    """Tests of batches, skipped if the broker is not `PublishingMany`."""

    def batch_publisher(self, broker: Broker) -> PublishingMany:
        if not isinstance(broker, PublishingMany):
            raise unittest.SkipTest("this broker does not publish batches")
        return broker

    @case
    async def test_each_message_of_a_batch_gets_its_own_outcome(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        messages = [app_message(queue if number % 3 else "gone", str(number), number) for number in range(300)]
        messages[1] = app_message(queue, bytes(broker.max_message_bytes + 1), 1)

        outcomes = await self.batch_publisher(broker).publish_many(messages, timeout=self.publish_timeout)

        assert type(outcomes[1]) is TooLarge
        assert {type(error) for error in outcomes[::3]} == {Unroutable}
        fine = [number for number in range(2, 300) if number % 3]
        assert [outcomes[number] for number in fine] == [None] * len(fine)
        await self.expect_only(broker, queue, *map(str, fine))

    @case
    async def test_an_empty_batch_is_published_immediately(self) -> None:
        assert await self.batch_publisher(self.broker()).publish_many([], timeout=self.publish_timeout) == []

    @case
    async def test_thousands_of_messages_in_one_batch_keep_their_order(self) -> None:
        broker = self.broker()
        many = self.batch_publisher(broker)
        queue = await self.queue(broker)
        messages = [app_message(queue, str(number), number) for number in range(_MANY)]
        # Some differ from the others and keep their position.
        messages[7] = replace(messages[7], headers={"note": "7"})
        messages[9] = replace(messages[9], job_id="nine")
        messages[11] = replace(messages[11], due=1)

        assert await many.publish_many(messages, timeout=self.publish_timeout) == [None] * _MANY

        inbox, _ = await self.consume(broker, queue, prefetch=500)
        assert bodies(await inbox.take_and_ack(_MANY)) == [str(number) for number in range(_MANY)]

    @case
    async def test_a_closed_broker_publishes_nothing_of_a_batch(self) -> None:
        broker = self.broker()
        many = self.batch_publisher(broker)
        queue = await self.queue(broker)
        await self.send(broker, queue, "one")
        await broker.aclose()

        sent = [app_message(queue, "two", 2), app_message(queue, "three", 3)]
        outcomes = await many.publish_many(sent, timeout=self.publish_timeout)

        assert [type(error) for error in outcomes] == [BrokerUnavailable] * 2

    @case
    async def test_cancelling_the_wait_for_a_batch_does_not_unpublish_it(self) -> None:
        broker = self.broker()
        many = self.batch_publisher(broker)
        queue = await self.queue(broker)

        sent = [app_message(queue, "one", 1), app_message(queue, "two", 2)]
        many.publish_many(sent, timeout=self.publish_timeout).cancel()

        await self.send(broker, queue, "three")
        await self.expect_only(broker, queue, "one", "two", "three")
