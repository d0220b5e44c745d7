"""Tests of `browse`: reading the front of a queue without changing it."""

from collections.abc import Iterable

from taskmq.contracts.broker import Delivery
from taskmq.errors import QueueMissing
from taskmq.testing.broker_suite.case import BrokerCase, bodies, peek
from taskmq.testing.runner import case, raises

_LOOKS = 25
_MANY = 300


class Browsing(BrokerCase):
    @case
    async def test_a_hold_returns_the_front_of_the_queue_in_order(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        async with peek(broker, queue, limit=3) as held:
            assert bodies(held) == ["a", "b", "c"]
            assert [delivery.queue for delivery in held] == [queue] * 3

    @case
    async def test_held_messages_return_in_their_original_order(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        async with peek(broker, queue, limit=3):
            pass

        await self.expect_ready(broker, queue, 5)
        await self.expect_only(broker, queue, *"abcde")

    @case
    async def test_some_held_messages_can_be_acked(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcdef")

        async with peek(broker, queue, limit=5) as held:
            for delivery in held:
                if delivery.body in (b"b", b"d"):
                    delivery.ack()

        await self.expect_ready(broker, queue, 4)
        await self.expect_only(broker, queue, *"acef")

    @case
    async def test_held_messages_can_be_requeued_explicitly(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abc")

        async with peek(broker, queue, limit=10) as held:
            held[0].requeue()
            held[1].ack()

        await self.expect_ready(broker, queue, 2)
        await self.expect_only(broker, queue, *"ac")

    @case
    async def test_a_hold_returns_at_most_the_messages_in_the_queue(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"ab")

        async with peek(broker, queue, limit=1_000) as held:
            assert bodies(held) == ["a", "b"]
            for delivery in held:
                delivery.ack()

        await self.expect_only(broker, queue)

    @case
    async def test_holding_an_empty_queue_returns_an_empty_list(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        for _ in range(3):
            async with peek(broker, queue, limit=10) as held:
                assert held == []

    @case
    async def test_held_messages_are_not_delivered_to_others(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abc")

        async with peek(broker, queue, limit=2), peek(other, queue, limit=10) as rest:
            assert bodies(rest) == ["c"]

        # Each hold returns its messages in order; the hold that ended last returns its messages to the front.
        await self.expect_ready(broker, queue, 3)
        inbox, _ = await self.consume(broker, queue)
        received = bodies(await inbox.take_and_ack(3))
        assert [text for text in received if text != "c"] == ["a", "b"]
        assert "c" in received

    @case
    async def test_browsing_to_different_depths_leaves_the_queue_unchanged(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        for depth in (5, 3, 1, 4, 2, 5, 10):
            await self.expect_ready(broker, queue, 5)
            async with peek(broker, queue, limit=depth) as held:
                assert bodies(held) == [*"abcde"][:depth], f"depth {depth}"

        await self.expect_ready(broker, queue, 5)
        await self.expect_only(broker, queue, *"abcde")

    @case
    async def test_browsing_many_times_leaves_the_queue_unchanged(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        for turn in range(_LOOKS):
            await self.expect_ready(broker, queue, 5)
            async with peek(broker, queue, limit=3) as held:
                assert bodies(held) == ["a", "b", "c"], f"round {turn}"

        await self.expect_ready(broker, queue, 5)
        await self.expect_only(broker, queue, *"abcde")

    @case
    async def test_a_hold_returns_its_messages_when_its_block_raises(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abc")

        with raises(ZeroDivisionError):
            async with peek(broker, queue, limit=2) as held:
                held[0].ack()
                raise ZeroDivisionError

        await self.expect_ready(broker, queue, 2)
        await self.expect_only(broker, queue, *"bc")

    @case
    async def test_settling_a_message_after_its_hold_has_no_effect(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"ab")
        async with peek(broker, queue, limit=2) as held:
            pass

        for delivery in held:
            delivery.ack()

        await self.expect_ready(broker, queue, 2)
        await self.expect_only(broker, queue, *"ab")

    @case
    async def test_browsing_reads_a_queue_in_batches(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcdefg")

        async with broker.browse(queue) as look:
            pieces = [bodies(await look.take(3)) for _ in range(4)]

        assert pieces == [["a", "b", "c"], ["d", "e", "f"], ["g"], []]
        await self.expect_ready(broker, queue, 7)
        await self.expect_only(broker, queue, *"abcdefg")

    @case
    async def test_messages_left_by_browsing_return_in_their_original_order(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        names = [f"{number:03}" for number in range(_MANY)]
        await self.send(broker, queue, *names)

        async with broker.browse(queue) as look:
            while batch := await look.take(40):
                _ack_each(delivery for delivery in batch if delivery.body.endswith(b"7"))
                # Drop the deliveries, so that only the broker still knows them.
                batch.clear()

        left = [name for name in names if not name.endswith("7")]
        await self.expect_ready(broker, queue, len(left))
        async with peek(broker, queue, limit=5) as held:
            assert bodies(held) == left[:5]
        await self.expect_ready(broker, queue, len(left))
        async with peek(broker, queue, limit=_MANY) as held:
            assert bodies(held) == left
        await self.expect_ready(broker, queue, len(left))
        await self.expect_only(broker, queue, *left)

    @case
    async def test_browsing_that_fails_returns_every_message(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        with raises(ZeroDivisionError):
            async with broker.browse(queue) as look:
                (await look.take(2))[0].ack()
                await look.take(2)
                raise ZeroDivisionError

        await self.expect_ready(broker, queue, 4)
        await self.expect_only(broker, queue, *"bcde")

    @case
    async def test_browsing_a_missing_queue_raises(self) -> None:
        broker = self.broker()
        missing = self.new_queue().name

        async with broker.browse(missing) as look:
            with raises(QueueMissing) as caught:
                await look.take(1)

        assert caught[0].queue == missing

    @case
    async def test_holding_a_missing_queue_raises(self) -> None:
        broker = self.broker()
        missing = self.new_queue().name

        with raises(QueueMissing) as caught:
            async with peek(broker, missing, limit=1):
                pass

        assert caught[0].queue == missing


def _ack_each(deliveries: Iterable[Delivery]) -> None:
    for delivery in deliveries:
        delivery.ack()
