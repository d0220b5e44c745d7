"""Tests of `aclose`: it flushes, leaves nothing behind, and later calls raise a typed error."""

import asyncio
from collections.abc import Awaitable, Callable

from taskmq.contracts.broker import Broker, Subscription
from taskmq.errors import BrokerUnavailable
from taskmq.testing.broker_suite.case import BrokerCase, message
from taskmq.testing.runner import case, only_these_tasks

_MANY = 200


class BrokerClosureCases(BrokerCase):
    @case
    async def test_an_unused_broker_can_be_closed(self) -> None:
        broker = self.broker()

        await broker.aclose()

    @case
    async def test_a_broker_can_be_closed_twice_even_concurrently(self) -> None:
        broker = self.broker()
        await self.queue(broker)

        await asyncio.gather(broker.aclose(), broker.aclose())
        await broker.aclose()

    @case
    async def test_closing_waits_for_pending_publishes(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        texts = [str(number) for number in range(_MANY)]
        await broker.connect(timeout=self.patience)

        futures = [broker.publish(message(queue, text), timeout=self.publish_timeout) for text in texts]
        await broker.aclose()

        assert all(future.done() for future in futures)
        await asyncio.gather(*futures)
        await self.expect_only(other, queue, *texts)

    @case
    async def test_closing_waits_for_publishes_made_before_the_broker_connected(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)

        future = broker.publish(message(queue, "first use"), timeout=self.publish_timeout)
        await broker.aclose()

        assert future.done()
        await future
        await self.expect_only(other, queue, "first use")

    @case
    async def test_closing_waits_for_pending_settlements(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        await self.send(other, queue, *(str(number) for number in range(_MANY)))
        inbox, _ = await self.consume(broker, queue, prefetch=_MANY)
        held = await inbox.take(_MANY)

        for delivery in held[:-2]:
            delivery.ack()
        await broker.aclose()

        await self.expect_ready(other, queue, 2)
        await self.expect_only(other, queue, str(_MANY - 2), str(_MANY - 1))

    @case
    async def test_closing_stops_the_consumers(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        inbox, consumer = await self.consume(broker, queue)

        await broker.aclose()

        await self.send(other, queue, "one")
        await self.expect_only(other, queue, "one")
        assert not inbox.deliveries
        await consumer.stop()

    @case
    async def test_every_call_on_a_closed_broker_raises(self) -> None:
        broker, other = self.broker(), self.broker()
        work = self.new_queue()
        queue = work.name
        await other.declare([work])
        await broker.connect(timeout=self.patience)
        await broker.aclose()

        async def publish() -> None:
            await broker.publish(message(queue, "late"), timeout=self.publish_timeout)

        async def browse() -> None:
            async with broker.browse(queue) as front:
                await front.take(1)

        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "connect": lambda: broker.connect(timeout=self.publish_timeout),
            "declare": lambda: broker.declare([work]),
            "publish": publish,
            "consume": lambda: broker.consume([Subscription(queue, 1)], self.inbox()),
            "browse": browse,
            "purge": lambda: broker.purge(queue),
            "stats": lambda: broker.stats([queue]),
        }
        for name, call in calls.items():
            assert await self._is_refused(call), f"{name} of a closed broker did not raise BrokerUnavailable"
        await self.expect_only(other, queue)

    @case
    async def test_many_brokers_open_and_close_without_leaks(self) -> None:
        holder = self.broker()
        queue = await self.queue(holder)
        await self._open_and_close(queue)
        before = asyncio.all_tasks()

        for _ in range(15):
            await self._open_and_close(queue)

        await only_these_tasks(before)
        await self.expect_only(holder, queue)

    async def _open_and_close(self, queue: str) -> None:
        broker: Broker = self.open_broker("short-lived")
        try:
            await self.send(broker, queue, "one")
            inbox, _ = await self.consume(broker, queue)
            await inbox.take_and_ack(1)
        finally:
            await broker.aclose()

    async def _is_refused(self, call: Callable[[], Awaitable[object]]) -> bool:
        try:
            async with asyncio.timeout(self.patience):
                await call()
        except BrokerUnavailable:
            return True
        return False
