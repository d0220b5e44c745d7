"""Tests of ordered queues: one consumer per shard, and no message out of order when another takes over."""

from taskmq.contracts.broker import Broker
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.topology import is_shard
from taskmq.testing.broker_suite.case import BrokerCase, bodies, message, peek
from taskmq.testing.runner import case, eventually

_OWNER_CHANGES = 20


class Ordering(BrokerCase):
    @case
    async def test_each_shard_has_its_own_queue(self) -> None:
        broker = self.broker()
        work = self.new_queue(ordered=3)
        await broker.declare([work])

        await self.publish(broker, *(message(queue, f"to {queue}") for queue in work.always))

        assert len(set(work.always)) == 3
        assert all(is_shard(queue) for queue in work.always)
        for queue in work.always:
            await self.expect_only(broker, queue, f"to {queue}")

    @case
    async def test_a_shard_has_one_consumer_at_a_time(self) -> None:
        first, second = self.broker(), self.broker()
        shard = await self._shard(first)
        texts = [str(number) for number in range(30)]
        inbox, _ = await self.consume(first, shard, prefetch=1)
        standby, _ = await self.consume(second, shard, prefetch=1)

        await self.send(second, shard, *texts)

        assert bodies(await inbox.take_and_ack(len(texts))) == texts
        assert not standby.deliveries

    @case
    async def test_the_next_consumer_takes_over_after_the_first_stops(self) -> None:
        first, second = self.broker(), self.broker()
        shard = await self._shard(first)
        inbox, consumer = await self.consume(first, shard, prefetch=1)
        standby, _ = await self.consume(second, shard, prefetch=1)
        await self.send(second, shard, "1")
        await inbox.take_and_ack(1)

        await consumer.stop()
        await self.send(second, shard, "2", "3")

        assert bodies(await standby.take_and_ack(2)) == ["2", "3"]
        assert not inbox.untaken

    @case
    async def test_a_stopped_consumer_keeps_its_shard_until_everything_is_settled(self) -> None:
        first, second = self.broker(), self.broker()
        shard, other = await self._shard(first), await self.queue(first)
        await self.send(first, shard, "1", "2", "3", "4")
        inbox, consumer = await self.consume(first, shard, prefetch=2)
        held = await inbox.take(2)
        standby, _ = await self.consume(second, shard, other, prefetch=1)

        await consumer.stop()
        held[0].ack()
        await self.send(first, other, "the second one gets what is not in the shard")
        await standby.take_and_ack(1)

        assert bodies(standby.deliveries) == ["the second one gets what is not in the shard"]
        held[1].ack()
        assert bodies(await standby.take_and_ack(2)) == ["3", "4"]
        assert not inbox.untaken

    @case
    async def test_messages_requeued_by_a_stopped_consumer_reach_the_next_first(self) -> None:
        first, second = self.broker(), self.broker()
        shard = await self._shard(first)
        await self.send(first, shard, "1", "2", "3")
        inbox, consumer = await self.consume(first, shard, prefetch=1)
        (held,) = await inbox.take(1)
        standby, _ = await self.consume(second, shard, prefetch=1)

        await consumer.stop()
        held.requeue()

        received = await standby.take_and_ack(3)
        assert bodies(received) == ["1", "2", "3"]
        assert received[0].redelivered
        assert not inbox.untaken

    @case
    async def test_a_new_owner_keeps_the_order(self) -> None:
        """Each time, the stopping consumer settles its last message while the next one already waits."""
        left, right = self.broker(), self.broker()
        shard = await self._shard(left)
        texts = [str(number) for number in range(_OWNER_CHANGES + 1)]
        await self.send(left, shard, *texts)
        inbox, consumer = await self.consume(left, shard, prefetch=1)
        received: list[str] = []

        for number in range(_OWNER_CHANGES):
            (held,) = await inbox.take(1)
            received += bodies([held])
            standby, waiting = await self.consume((right, left)[number % 2], shard, prefetch=1)
            await consumer.stop()
            assert not standby.deliveries
            held.ack()
            inbox, consumer = standby, waiting

        assert [*received, *bodies(await inbox.take_and_ack(1))] == texts

    @case
    async def test_messages_of_a_closed_broker_reach_the_next_owner_first(self) -> None:
        first, second = self.broker(), self.broker()
        shard = await self._shard(second)
        await self.send(second, shard, *"1234")
        inbox, _ = await self.consume(first, shard, prefetch=2)
        await inbox.take(2)
        standby, _ = await self.consume(second, shard, prefetch=1)

        await first.aclose()

        received = await standby.take_and_ack(4)
        assert bodies(received) == ["1", "2", "3", "4"]
        assert [delivery.redelivered for delivery in received[:2]] == [True, True]

    @case
    async def test_messages_of_a_killed_process_reach_the_next_owner_first(self) -> None:
        broker = self.broker()
        shard = await self._shard(broker)
        await self.send(broker, shard, *"1234")

        await self.take_in_killed_process(shard, 2)

        standby, _ = await self.consume(broker, shard, prefetch=1)
        received = await standby.take_and_ack(4)
        assert bodies(received) == ["1", "2", "3", "4"]
        assert received[0].redelivered

    @case
    async def test_messages_of_a_disconnected_broker_reach_the_next_owner_first(self) -> None:
        self.require_lose()
        first, second = self.broker("cut off"), self.broker()
        shard = await self._shard(second)
        await self.send(second, shard, *"1234")
        inbox, _ = await self.consume(first, shard, prefetch=1)
        (held,) = await inbox.take(1)
        standby, _ = await self.consume(second, shard, prefetch=1)

        await self.lose(first)

        # The current owner of the shard: the waiting consumer, or the first one if it reconnected faster.
        received: list[str] = []

        async def have_all_arrived() -> bool:
            for mine in (inbox, standby):
                received.extend(bodies(await mine.take_and_ack(len(mine.untaken))))
            return len(received) >= 4

        await eventually(have_all_arrived, expected=True, within=self.patience)
        held.ack()
        assert received == ["1", "2", "3", "4"]

    @case
    async def test_a_requeued_message_is_redelivered_first(self) -> None:
        broker = self.broker()
        shard = await self._shard(broker)
        await self.send(broker, shard, "1", "2", "3")
        inbox, _ = await self.consume(broker, shard, prefetch=1)

        for _ in range(3):
            (delivery,) = await inbox.take(1)
            assert bodies([delivery]) == ["1"]
            delivery.requeue()

        assert bodies(await inbox.take_and_ack(3)) == ["1", "2", "3"]

    @case
    async def test_a_delayed_message_joins_its_shard_when_due(self) -> None:
        broker = self.broker()
        shard = await self._shard(broker)
        inbox, _ = await self.consume(broker, shard, prefetch=1)

        due = SystemClock().now_ms() + 1000
        await self.publish(broker, message(shard, "delayed", due=due), message(shard, "at once"))
        (first,) = await inbox.take(1)
        await self.expect_ready(broker, shard, 1)
        await self.send(broker, shard, "sent last")
        first.ack()

        assert bodies([first, *await inbox.take_and_ack(2)]) == ["at once", "delayed", "sent last"]

    @case
    async def test_browsing_a_shard_keeps_its_order(self) -> None:
        broker, other = self.broker(), self.broker()
        shard = await self._shard(broker)
        await self.send(broker, shard, *"abcd")

        async with peek(broker, shard, limit=3) as held:
            assert bodies(held) == ["a", "b", "c"]
            held[0].ack()

        await self.expect_ready(broker, shard, 3)
        await self.expect_only(other, shard, "b", "c", "d")

    async def _shard(self, broker: Broker) -> str:
        """Return the only shard of a new ordered queue."""
        work = self.new_queue(ordered=1)
        await broker.declare([work])
        (shard,) = work.always
        return shard
