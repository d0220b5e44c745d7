"""Tests of settling: the first ack or requeue counts, and unsettled messages return."""

import asyncio

from taskmq.contracts.broker import Broker
from taskmq.testing.broker_suite.case import BrokerCase, bodies
from taskmq.testing.runner import case


class Settling(BrokerCase):
    @case
    async def test_an_acked_message_is_never_redelivered(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one", "two")
        inbox, _ = await self.consume(broker, queue)
        await inbox.take_and_ack(2)

        await broker.aclose()

        await self.expect_only(other, queue)

    @case
    async def test_unsettled_messages_return_first_when_their_broker_closes(self) -> None:
        holder, other = self.broker(), self.broker()
        queue = await self.queue(other)
        await self.send(other, queue, "one", "two", "three")
        inbox, _ = await self.consume(holder, queue, prefetch=2)
        await inbox.take(2)

        await holder.aclose()

        await self._expect_back(other, queue, back=["one", "two"], then=["three"])

    @case
    async def test_unsettled_messages_return_first_when_their_process_is_killed(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one", "two", "three")

        await self.take_in_killed_process(queue, 2)

        await self._expect_back(broker, queue, back=["one", "two"], then=["three"])

    @case
    async def test_unsettled_messages_return_first_when_their_connection_is_cut(self) -> None:
        self.require_lose()
        holder, other = self.broker("cut off"), self.broker()
        queue = await self.queue(other)
        await self.send(other, queue, "one", "two", "three")
        inbox, consumer = await self.consume(holder, queue, prefetch=2)
        held = await inbox.take(2)
        await consumer.stop()

        await self.lose(holder)

        await self._expect_back(other, queue, back=["one", "two"], then=["three"])
        for late in held:
            late.ack()
            late.requeue()
        await self.expect_only(holder, queue)

    @case
    async def test_settling_a_lost_delivery_affects_no_other_message(self) -> None:
        self.require_lose()
        broker, other = self.broker("cut off"), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one", "two")
        inbox, consumer = await self.consume(broker, queue, prefetch=10)
        lost = await inbox.take(2)

        await self.lose(broker)
        again = await inbox.take(2)
        for delivery in lost:
            delivery.ack()

        assert bodies(again) == ["one", "two"]
        assert [delivery.redelivered for delivery in again] == [True, True]
        await consumer.stop()
        await broker.aclose()
        await self._expect_back(other, queue, back=["one", "two"], then=[])

    @case
    async def test_a_confirmed_ack_survives_an_immediate_disconnect(self) -> None:
        self.require_lose()
        broker, other = self.broker("cut off"), self.broker()
        queue = await self.queue(other)
        await self.send(other, queue, "one", "two", "three")
        inbox, consumer = await self.consume(broker, queue, prefetch=3)
        held = await inbox.take(3)

        confirmed = await asyncio.gather(*(delivery.ack_confirmed() for delivery in held))
        await self.lose(broker)

        assert confirmed == [True, True, True]
        assert [await delivery.ack_confirmed() for delivery in held] == [False, False, False]
        await consumer.stop()
        await self.expect_only(other, queue)

    @case
    async def test_an_ack_of_a_lost_delivery_is_not_confirmed(self) -> None:
        self.require_lose()
        broker, other = self.broker("cut off"), self.broker()
        queue = await self.queue(other)
        await self.send(other, queue, "one", "two")
        inbox, consumer = await self.consume(broker, queue, prefetch=2)
        settled, lost = await inbox.take(2)
        settled.requeue()

        assert not await settled.ack_confirmed()
        await consumer.stop()
        await self.lose(broker)

        assert not await lost.ack_confirmed()
        # The first may have been delivered twice before the consumer stopped, so it may follow the other.
        rest, _ = await self.consume(other, queue)
        assert sorted(bodies(await rest.take_and_ack(2))) == ["one", "two"]

    @case
    async def test_the_last_ack_of_a_stopped_consumer_is_confirmed(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        await self.send(other, queue, "one", "two")
        inbox, consumer = await self.consume(broker, queue, prefetch=2)
        held = await inbox.take(2)
        await consumer.stop()

        confirmed = [await delivery.ack_confirmed() for delivery in held]

        assert confirmed == [True, True]
        await broker.aclose()
        await self.expect_only(other, queue)

    @case
    async def test_a_requeued_message_returns_first_and_is_marked_redelivered(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one", "two", "three")
        inbox, _ = await self.consume(broker, queue, prefetch=1)
        (first,) = await inbox.take(1)

        first.requeue()

        received = await inbox.take_and_ack(3)
        assert bodies(received) == ["one", "two", "three"]
        assert [delivery.redelivered for delivery in received] == [True, False, False]
        assert received[0].message_id == first.message_id

    @case
    async def test_requeued_messages_keep_their_order_before_later_ones(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one", "two", "three", "four")
        inbox, consumer = await self.consume(broker, queue, prefetch=3)
        held = await inbox.take(3)
        await consumer.stop()

        for delivery in held:
            delivery.requeue()

        await self._expect_back(other, queue, back=["one", "two", "three"], then=["four"])

    @case
    async def test_a_message_can_be_requeued_many_times(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one")
        inbox, _ = await self.consume(broker, queue, prefetch=1)

        for _ in range(12):
            (delivery,) = await inbox.take(1)
            delivery.requeue()

        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_acks_can_be_sent_in_any_order(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcdef")
        inbox, _ = await self.consume(broker, queue)
        held = {delivery.body.decode(): delivery for delivery in await inbox.take(6)}

        for text in "ebca":
            held[text].ack()
        await broker.aclose()

        await self._expect_back(other, queue, back=["d", "f"], then=[])

    @case
    async def test_after_an_ack_later_settlements_are_ignored(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one")
        inbox, _ = await self.consume(broker, queue)
        (delivery,) = await inbox.take(1)

        delivery.ack()
        delivery.requeue()
        delivery.ack()
        await broker.aclose()
        delivery.requeue()

        await self.expect_only(other, queue)

    @case
    async def test_after_a_requeue_later_settlements_are_ignored(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one")
        inbox, _ = await self.consume(broker, queue, prefetch=1)
        (delivery,) = await inbox.take(1)

        delivery.requeue()
        delivery.ack()
        (again,) = await inbox.take(1)
        # The message is redelivered as a new delivery.
        delivery.ack()
        delivery.requeue()

        assert again.redelivered
        await broker.aclose()
        await self._expect_back(other, queue, back=["one"], then=[])

    @case
    async def test_deliveries_can_be_settled_after_their_consumer_has_stopped(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "acked", "requeued", "kept")
        inbox, consumer = await self.consume(broker, queue, prefetch=3)
        acked, requeued, _ = await inbox.take(3)

        await consumer.stop()
        acked.ack()
        requeued.requeue()

        rest, _ = await self.consume(other, queue, prefetch=1)
        (received,) = await rest.take_and_ack(1)
        assert (received.body, received.redelivered) == (b"requeued", True)
        await broker.aclose()
        (received,) = await rest.take_and_ack(1)
        assert (received.body, received.redelivered) == (b"kept", True)
        await self.send(other, queue, "last")
        assert bodies(await rest.take_and_ack(1)) == ["last"]

    @case
    async def test_settling_after_the_broker_closed_has_no_effect(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one", "two")
        inbox, _ = await self.consume(broker, queue)
        first, second = await inbox.take(2)

        await broker.aclose()
        first.ack()
        second.requeue()

        await self._expect_back(other, queue, back=["one", "two"], then=[])

    async def _expect_back(self, broker: Broker, queue: str, *, back: list[str], then: list[str]) -> None:
        """Expect `back` first, as redelivered, before `then` and a message sent now."""
        await self.expect_ready(broker, queue, len(back) + len(then))
        await self.send(broker, queue, "sent last")
        inbox, consumer = await self.consume(broker, queue, prefetch=1)
        received = await inbox.take_and_ack(len(back) + len(then) + 1)
        assert bodies(received) == [*back, *then, "sent last"]
        assert [delivery.redelivered for delivery in received[: len(back)]] == [True] * len(back)
        await consumer.stop()
        assert not inbox.untaken
