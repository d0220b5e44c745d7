"""Administration: declare, purge and stats."""

import asyncio
import itertools
import unittest

from taskmq.contracts.broker_abilities import Deleting
from taskmq.errors import QueueMissing
from taskmq.model.topology import PARKING, UNROUTABLE, dead_letter_queue
from taskmq.testing.broker_suite.case import BrokerCase, bodies, message
from taskmq.testing.runner import case, eventually, raises


class Administration(BrokerCase):
    @case
    async def test_connecting_twice_succeeds_and_the_address_is_a_url(self) -> None:
        broker = self.broker()

        await asyncio.gather(*(broker.connect(timeout=self.patience) for _ in range(3)))
        await broker.connect(timeout=self.patience)

        assert "://" in broker.address

    @case
    async def test_redeclaring_a_queue_changes_nothing(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = self.new_queue()
        await broker.declare([queue])
        await self.send(broker, queue.name, "kept")

        await broker.declare([queue, queue])
        await other.declare([queue])
        await other.declare([])

        await self.expect_only(other, queue.name, "kept")

    @case
    async def test_deleting_a_queue_drops_its_messages_and_it_can_be_redeclared(self) -> None:
        broker = self.broker()
        if not isinstance(broker, Deleting):
            raise unittest.SkipTest("this broker deletes no queues")
        queue = self.new_queue()
        await broker.declare([queue])
        await self.send(broker, queue.name, "one", "two")
        await self.expect_ready(broker, queue.name, 2)

        assert await broker.delete(queue.name) == 2

        assert await broker.stats([queue.name]) == []
        with raises(QueueMissing):
            await broker.delete(queue.name)
        await broker.declare([queue])
        await self.send(broker, queue.name, "new")
        await self.expect_only(broker, queue.name, "new")

    @case
    async def test_several_brokers_can_declare_concurrently(self) -> None:
        brokers = [self.broker(f"number {number}") for number in range(5)]
        queues = [self.new_queue() for _ in range(3)]

        await asyncio.gather(*(broker.declare(queues) for broker in brokers for _ in range(2)))

        for broker in brokers:
            for queue in queues:
                await self.send(broker, queue.name, "one")
                await self.expect_only(broker, queue.name, "one")

    @case
    async def test_shared_queues_are_declared_and_dead_letters_reach_their_queue(self) -> None:
        broker, looker = self.broker(), self.broker()
        queue = await self.queue(broker)
        dead = dead_letter_queue(queue)

        assert [stats.queue for stats in await broker.stats([PARKING, UNROUTABLE])] == [PARKING, UNROUTABLE]
        await self.publish(broker, message(dead, "it died"))
        assert [stats.queue for stats in await looker.stats([dead])] == [dead]
        await self.expect_only(broker, dead, "it died")

    @case
    async def test_a_purge_empties_the_queue_and_returns_the_number_of_messages(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcde")
        await self.expect_ready(broker, queue, 5)

        assert await broker.purge(queue) == 5
        assert await broker.purge(queue) == 0
        await self.expect_only(broker, queue)

    @case
    async def test_a_purge_keeps_delivered_messages(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *"abcd")
        inbox, _ = await self.consume(broker, queue, prefetch=1)
        (held,) = await inbox.take(1)
        await self.expect_ready(other, queue, 3)

        assert await other.purge(queue) == 3

        held.requeue()
        assert bodies(await inbox.take_and_ack(1)) == ["a"]

    @case
    async def test_purging_a_missing_queue_raises(self) -> None:
        broker = self.broker()
        missing = self.new_queue().name

        with raises(QueueMissing) as caught:
            await broker.purge(missing)

        assert caught[0].queue == missing

    @case
    async def test_stats_keep_the_requested_order_and_omit_missing_queues(self) -> None:
        broker = self.broker()
        existing = [await self.queue(broker) for _ in range(3)]
        missing = self.new_queue().name

        for asked in itertools.permutations([*existing, missing]):
            answered = [stats.queue for stats in await broker.stats(asked)]
            assert answered == [queue for queue in asked if queue != missing]
        assert await broker.stats([missing]) == []
        assert await broker.stats([]) == []
        # The broker keeps working after a request for a missing queue.
        await self.send(broker, existing[0], "one")

    @case
    async def test_stats_count_ready_messages_consumers_and_unsettled_messages(self) -> None:
        broker, other = self.broker(), self.broker()
        queue, empty = await self.queue(broker), await self.queue(broker)
        await self.send(broker, queue, *"abcde")

        async def read_stats() -> list[tuple[int, int]]:
            return [(stats.ready, stats.consumers) for stats in await other.stats([queue, empty])]

        await eventually(read_stats, [(5, 0), (0, 0)], within=self.patience)
        inbox, consumer = await self.consume(broker, queue, prefetch=2)
        second_inbox, second = await self.consume(other, queue, prefetch=1)
        held = await inbox.take(2) + await second_inbox.take(1)
        await eventually(read_stats, [(2, 2), (0, 0)], within=self.patience)
        (stats,) = await other.stats([queue])
        assert stats.unsettled in (None, 3)
        assert stats.delayed in (None, 0)

        await second.stop()
        await consumer.stop()
        for delivery in held:
            delivery.ack()
        await eventually(read_stats, [(2, 0), (0, 0)], within=self.patience)
