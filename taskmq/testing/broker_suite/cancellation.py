"""Tests of cancellation: a call cancelled at any point leaves the broker working and loses nothing."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from taskmq.contracts.broker import Broker, Subscription
from taskmq.testing.broker_suite.case import BrokerCase, bodies, message, peek
from taskmq.testing.runner import CancelPoint, cancel_at, case

_T = TypeVar("_T")


class Cancelling(BrokerCase):
    @case
    async def test_cancelling_publishes_loses_no_confirmed_message(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        for point in CancelPoint.TIMED:
            texts = [f"{point} {number}" for number in range(10)]
            futures = [broker.publish(message(queue, text), timeout=self.publish_timeout) for text in texts]
            await point.reach()
            for future in futures[::2]:
                future.cancel()
            await asyncio.wait(futures)

            confirmed = {text for text, future in zip(texts, futures, strict=True) if not future.cancelled()}
            await asyncio.gather(*(future for future in futures if not future.cancelled()))
            assert confirmed >= set(texts[1::2])
            received = await self._take_all(broker, queue)
            assert sorted(set(received)) == sorted(received), f"{point}: delivered twice"
            assert confirmed <= set(received) <= set(texts), f"{point}"
            assert received == [text for text in texts if text in received], f"{point}: out of order"

    @case
    async def test_connect_can_be_cancelled(self) -> None:
        holder = self.broker()
        queue = await self.queue(holder)

        for point in CancelPoint.ALL:
            broker = self.open_broker("cancelled")
            await self._cancel(point, broker.connect(timeout=self.patience))
            await self._expect_working(broker, queue)
            await broker.aclose()

    @case
    async def test_the_first_use_can_be_cancelled_while_others_wait_for_it(self) -> None:
        holder = self.broker()
        queue = await self.queue(holder)

        for point in CancelPoint.ALL:
            broker = self.open_broker("cancelled")
            others = [asyncio.create_task(self.send(broker, queue, text)) for text in "ab"]
            await self._cancel(point, broker.connect(timeout=self.patience))
            await asyncio.gather(*others)
            await broker.aclose()
            assert sorted(await self._take_all(holder, queue)) == ["a", "b"], f"{point}"

    @case
    async def test_declare_can_be_cancelled(self) -> None:
        broker = self.broker()

        for point in CancelPoint.ALL:
            queue = self.new_queue()
            await self._cancel(point, broker.declare([queue]))
            await broker.declare([queue])
            await self._expect_working(broker, queue.name)

    @case
    async def test_consume_can_be_cancelled(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        for point in CancelPoint.ALL:
            await self.send(broker, queue, *"abc")
            inbox = self.inbox()
            call = broker.consume([Subscription(queue, 2)], inbox)
            if (consumer := await self._cancel(point, call)) is not None:
                await consumer.stop()

            # This test settles the delivered messages; all others must be available to other consumers.
            for delivery in inbox.deliveries:
                delivery.requeue()
            seen = len(inbox.deliveries)
            await self.expect_ready(broker, queue, 3)
            # A consumer that is still being created may hold some of them for a moment.
            await self.expect_all(broker, queue, *"abc")
            assert len(inbox.deliveries) == seen, f"{point}: deliveries continued"

    @case
    async def test_stop_can_be_cancelled_and_called_again(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        for point in CancelPoint.ALL:
            await self.send(broker, queue, *"abcdef")
            inbox, consumer = await self.consume(broker, queue, prefetch=4)
            await inbox.take(1)
            await self._cancel(point, consumer.stop())
            await consumer.stop()

            for delivery in inbox.deliveries:
                delivery.requeue()
            seen = len(inbox.deliveries)
            await self.expect_ready(broker, queue, 6)
            await self.expect_only(broker, queue, *"abcdef")
            assert len(inbox.deliveries) == seen, f"{point}: deliveries continued"

    @case
    async def test_a_cancelled_hold_returns_every_message(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        async def look() -> None:
            async with peek(broker, queue, limit=10):
                await asyncio.sleep(0)

        for point in CancelPoint.ALL:
            await self._cancel(point, look())
            await self.expect_ready(broker, queue, 5)
            async with peek(broker, queue, limit=10) as held:
                assert bodies(held) == [*"abcde"], f"{point}"

        await self.expect_ready(broker, queue, 5)
        await self.expect_only(broker, queue, *"abcde")

    @case
    async def test_purge_can_be_cancelled(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        for point in CancelPoint.ALL:
            await self.send(broker, queue, *"abc")
            await self._cancel(point, broker.purge(queue))
            # The outcome is unknown, but the purge never removes a message sent after it.
            await broker.purge(queue)
            await self._expect_working(broker, queue)

    @case
    async def test_stats_can_be_cancelled(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)

        for point in CancelPoint.ALL:
            await self._cancel(point, broker.stats([queue]))
            assert [stats.queue for stats in await broker.stats([queue])] == [queue]
        await self._expect_working(broker, queue)

    @case
    async def test_aclose_can_be_cancelled_and_called_again(self) -> None:
        holder = self.broker()
        queue = await self.queue(holder)

        for point in CancelPoint.ALL:
            broker = self.open_broker("cancelled")
            await self.send(holder, queue, "acked", "kept")
            inbox, _ = await self.consume(broker, queue)
            held = await inbox.take(2)
            held[0].ack()
            future = broker.publish(message(queue, "sent"), timeout=self.publish_timeout)

            await self._cancel(point, broker.aclose())
            await broker.aclose()

            await asyncio.wait({future}, timeout=self.patience)
            assert future.done(), f"{point}"
            was_sent = not future.cancelled() and future.exception() is None
            await self._expect_at_least(holder, queue, {"kept", "sent"} if was_sent else {"kept"})

    async def _cancel(self, point: CancelPoint, call: Coroutine[Any, Any, _T]) -> _T | None:
        return await cancel_at(point, call, within=self.patience)

    async def _expect_at_least(self, broker: Broker, queue: str, texts: set[str]) -> None:
        await self.send(broker, queue, "end")
        inbox, consumer = await self.consume(broker, queue)
        missing = {*texts, "end"}
        while missing:
            missing -= set(bodies(await inbox.take_and_ack(1)))
        await consumer.stop()

    async def _expect_working(self, broker: Broker, queue: str) -> None:
        await self.send(broker, queue, "works")
        assert await self._take_all(broker, queue) == ["works"]

    async def _take_all(self, broker: Broker, queue: str) -> list[str]:
        """Return everything in `queue`, up to a message that is sent now."""
        await self.send(broker, queue, "end")
        inbox, consumer = await self.consume(broker, queue, prefetch=20)
        received: list[str] = []
        while (text := bodies(await inbox.take_and_ack(1))[0]) != "end":
            received.append(text)
        await consumer.stop()
        return received
