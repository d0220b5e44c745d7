"""Tests of consumers: sharing, prefetch windows, and stopping."""

import asyncio
import time

from taskmq.contracts.broker import Delivery, Subscription
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.errors import QueueMissing
from taskmq.model.topology import is_jobs_queue
from taskmq.testing.broker_suite.case import BrokerCase, Inbox, bodies, message, peek
from taskmq.testing.runner import case, eventually, raises


class Consuming(BrokerCase):
    @case
    async def test_a_waiting_consumer_receives_later_messages(self) -> None:
        broker, sender = self.broker(), self.broker()
        queue = await self.queue(broker)
        inbox, consumer = await self.consume(broker, queue)
        assert consumer.healthy

        for text in ("one", "two"):
            await self.send(sender, queue, text)
            assert bodies(await inbox.take_and_ack(1)) == [text]

    @case
    async def test_each_priority_class_is_consumed_from_its_first_message(self) -> None:
        worker, sender = self.broker(), self.broker()
        queue = self.new_queue()
        await worker.declare([queue])
        await sender.declare([queue])
        inbox, consumer = await self.consume(worker, *queue.physical)
        if isinstance(worker, Broadcasting):
            # If queues are created later, consumers learn of them.
            await worker.listen(["worker.command.*"], lambda _topic, _body: None)
        assert consumer.healthy

        for physical in queue.physical:
            await self.send(sender, physical, physical)
            (received,) = await inbox.take_and_ack(1)
            assert (received.queue, received.body.decode()) == (physical, physical)

        # Delayed messages of a class arrive as well.
        due = int(time.time() * 1000) + 200
        classes = {physical for physical in queue.physical if not is_jobs_queue(physical)}
        await self.publish(sender, *(message(physical, "later", due=due) for physical in classes))
        assert {received.queue for received in await inbox.take_and_ack(3)} == classes

    @case
    async def test_deliver_is_called_on_the_event_loop_of_the_broker(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        here = asyncio.get_running_loop()
        loops: asyncio.Queue[asyncio.AbstractEventLoop] = asyncio.Queue()

        def deliver(delivery: Delivery) -> None:
            loops.put_nowait(asyncio.get_running_loop())
            delivery.ack()

        await broker.consume([Subscription(queue, 1)], deliver)
        await self.send(broker, queue, "one")

        async with asyncio.timeout(self.patience):
            assert await loops.get() is here

    @case
    async def test_the_prefetch_is_never_exceeded_and_each_ack_admits_one_more(self) -> None:
        broker, looker = self.broker(), self.broker()
        queue = await self.queue(broker)
        texts = [str(number) for number in range(8)]
        await self.send(broker, queue, *texts)

        inbox, _ = await self.consume(broker, queue, prefetch=3)
        in_hand = await inbox.take(3)

        for settled in range(4):
            # All messages that the consumer does not hold are available to others.
            async with peek(looker, queue, limit=10) as rest:
                assert bodies(rest) == texts[settled + 3 :]
            assert not inbox.untaken
            in_hand.pop(0).ack()
            in_hand += await inbox.take(1)
            assert bodies(in_hand) == texts[settled + 1 : settled + 4]

    @case
    async def test_each_queue_has_its_own_prefetch_and_deliveries_name_their_queue(self) -> None:
        broker = self.broker()
        full, free = await self.queue(broker), await self.queue(broker)
        inbox = self.inbox()
        await broker.consume([Subscription(full, 1), Subscription(free, 2)], inbox)

        await self.send(broker, full, "f1", "f2")
        (first,) = await inbox.take(1)
        await self.send(broker, free, "a", "b", "c")
        others = await inbox.take(2)

        assert (first.queue, [delivery.queue for delivery in others]) == (full, [free, free])
        assert bodies(others) == ["a", "b"]
        first.ack()
        assert bodies(await inbox.take_and_ack(1)) == ["f2"]
        others[0].ack()
        assert bodies(await inbox.take_and_ack(1)) == ["c"]

    @case
    async def test_a_larger_prefetch_admits_more_beside_unsettled_messages(self) -> None:
        broker = self.broker()
        queue, other = await self.queue(broker), await self.queue(broker)
        texts = [str(number) for number in range(12)]
        await self.send(broker, queue, *texts)
        await self.send(broker, other, "x", "y")
        inbox = self.inbox()
        consumer = await broker.consume([Subscription(queue, 2), Subscription(other, 1)], inbox)
        in_hand = await inbox.take(3)
        beside = [delivery for delivery in in_hand if delivery.queue == other]
        in_hand = [delivery for delivery in in_hand if delivery.queue == queue]

        await consumer.resize(queue, 5)

        in_hand += await inbox.take(3)
        for delivery in in_hand:
            delivery.ack()
        rest = await inbox.take_and_ack(len(texts) - len(in_hand))
        assert bodies([*in_hand, *rest]) == texts
        assert consumer.healthy
        assert bodies(beside) == ["x"]
        beside[0].ack()
        assert bodies(await inbox.take_and_ack(1)) == ["y"]

    @case
    async def test_a_smaller_prefetch_applies_once_unsettled_messages_are_settled(self) -> None:
        broker, looker = self.broker(), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "a", "b", "c")
        inbox, consumer = await self.consume(broker, queue, prefetch=10)
        in_hand = await inbox.take(3)

        await consumer.resize(queue, 1)
        for delivery in in_hand:
            delivery.ack()

        await self.send(broker, queue, "d", "e", "f")
        (only,) = await inbox.take(1)
        async with peek(looker, queue, limit=10) as rest:
            assert bodies(rest) == ["e", "f"]
        only.ack()
        assert bodies(await inbox.take_and_ack(2)) == ["e", "f"]

    @case
    async def test_a_paused_queue_delivers_nothing_and_deliveries_can_be_settled(self) -> None:
        broker, looker = self.broker(), self.broker()
        queue, other = await self.queue(broker), await self.queue(broker)
        await self.send(broker, queue, "a", "b", "c")
        inbox = self.inbox()
        consumer = await broker.consume([Subscription(queue, 2), Subscription(other, 2)], inbox)
        first, second = await inbox.take(2)

        await consumer.pause(queue)
        await consumer.pause(queue)
        first.ack()
        second.requeue()

        await self.expect_ready(looker, queue, 2)
        async with peek(looker, queue, limit=10) as rest:
            assert bodies(rest) == ["b", "c"]
        await self.send(broker, other, "x")
        assert bodies(await inbox.take_and_ack(1)) == ["x"]
        assert consumer.healthy
        assert not inbox.untaken

    @case
    async def test_a_resumed_queue_continues_where_it_paused(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "a", "b", "c")
        inbox, consumer = await self.consume(broker, queue, prefetch=1)
        (first,) = await inbox.take(1)
        await consumer.pause(queue)
        first.requeue()
        await self.expect_ready(broker, queue, 3)
        await self.send(broker, queue, "d")

        await consumer.resume(queue)
        await consumer.resume(queue)

        assert bodies(await inbox.take_and_ack(4)) == ["a", "b", "c", "d"]
        assert consumer.healthy

    @case
    async def test_a_queue_subscribed_while_paused_delivers_only_after_resume(self) -> None:
        broker = self.broker()
        queue, other = await self.queue(broker), await self.queue(broker)
        await self.send(broker, queue, "a")
        inbox = self.inbox()
        consumer = await broker.consume([Subscription(queue, 5, is_paused=True), Subscription(other, 5)], inbox)
        await self.send(broker, other, "x")

        assert bodies(await inbox.take_and_ack(1)) == ["x"]
        assert consumer.healthy
        assert not inbox.untaken
        await self.expect_ready(broker, queue, 1)
        (paused,) = await broker.stats([queue])
        assert paused.consumers == 0

        await consumer.resume(queue)
        assert bodies(await inbox.take_and_ack(1)) == ["a"]

    @case
    async def test_a_paused_shard_moves_to_another_consumer(self) -> None:
        broker, other = self.broker(), self.broker()
        work = self.new_queue(ordered=1)
        await broker.declare([work])
        (shard,) = work.always
        await self.send(broker, shard, "1", "2", "3")
        inbox, consumer = await self.consume(broker, shard, prefetch=1)
        (first,) = await inbox.take(1)
        standby, _ = await self.consume(other, shard, prefetch=1)

        await consumer.pause(shard)
        first.ack()

        assert bodies(await standby.take_and_ack(2)) == ["2", "3"]
        assert not inbox.untaken

    @case
    async def test_a_consumer_that_stops_while_a_queue_is_paused_stays_stopped(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, consumer = await self.consume(broker, queue)
        await consumer.pause(queue)

        await consumer.stop()
        await consumer.resume(queue)

        await self.send(broker, queue, "one")
        await self.expect_only(self.broker(), queue, "one")
        assert not inbox.untaken

    @case
    async def test_two_consumers_share_a_queue_without_duplicates(self) -> None:
        left, right = self.broker("left"), self.broker("right")
        queue = await self.queue(left)
        texts = [str(number) for number in range(60)]
        left_inbox, _ = await self.consume(left, queue, prefetch=1)
        right_inbox, _ = await self.consume(right, queue, prefetch=1)

        await self.send(left, queue, *texts)

        # With a prefetch of one, both get their share before either continues.
        first = await left_inbox.take(1) + await right_inbox.take(1)
        for delivery in first:
            delivery.ack()
        ack_tasks = [asyncio.create_task(_ack_all(inbox)) for inbox in (left_inbox, right_inbox)]

        async def count_received() -> int:
            return len(left_inbox.deliveries) + len(right_inbox.deliveries)

        try:
            await eventually(count_received, len(texts), within=self.patience)
        finally:
            for task in ack_tasks:
                task.cancel()
            await asyncio.wait(ack_tasks)
        both = bodies(left_inbox.deliveries + right_inbox.deliveries)
        assert sorted(both, key=int) == texts
        for inbox in (left_inbox, right_inbox):
            assert bodies(inbox.deliveries) == sorted(bodies(inbox.deliveries), key=int)

    @case
    async def test_two_consumers_of_one_broker_are_independent(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        stopped_inbox, stopped = await self.consume(broker, queue, prefetch=1)
        inbox, _ = await self.consume(broker, queue, prefetch=1)
        await self.send(broker, queue, "a", "b")
        first = await stopped_inbox.take(1) + await inbox.take(1)

        await stopped.stop()
        for delivery in first:
            delivery.ack()

        await self.send(broker, queue, "c", "d")
        assert bodies(await inbox.take_and_ack(2)) == ["c", "d"]
        assert not stopped_inbox.untaken

    @case
    async def test_consuming_a_missing_queue_fails_and_leaves_no_subscriptions(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "one", "two")
        inbox = self.inbox()
        missing = self.new_queue().name

        with raises(QueueMissing) as caught:
            await broker.consume([Subscription(queue, 10), Subscription(missing, 10)], inbox)

        assert caught[0].queue == missing
        for delivery in inbox.deliveries:
            delivery.requeue()
        await self.expect_ready(broker, queue, 2)
        seen = len(inbox.deliveries)
        await self.expect_only(broker, queue, "one", "two")
        assert len(inbox.deliveries) == seen

    @case
    async def test_nothing_is_delivered_after_a_consumer_has_stopped(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        inbox, consumer = await self.consume(broker, queue)
        await self.send(broker, queue, "one")
        await inbox.take_and_ack(1)

        await consumer.stop()

        await self.send(broker, queue, "two")
        await self.expect_only(other, queue, "two")
        assert bodies(inbox.deliveries) == ["one"]

    @case
    async def test_a_consumer_can_be_stopped_twice(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        _, consumer = await self.consume(broker, queue)

        await asyncio.gather(consumer.stop(), consumer.stop())
        await consumer.stop()

        await self.send(broker, queue, "one")
        await self.expect_only(broker, queue, "one")

    @case
    async def test_after_a_stop_other_consumers_get_prefetched_messages(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        texts = [str(number) for number in range(30)]
        await self.send(broker, queue, *texts)
        inbox, consumer = await self.consume(broker, queue, prefetch=30)
        await inbox.take(1)

        await consumer.stop()

        delivered = len(inbox.deliveries)
        rest, _ = await self.consume(other, queue, prefetch=30)
        assert bodies(await rest.take_and_ack(30 - delivered)) == texts[delivered:]
        assert len(inbox.deliveries) == delivered
        for delivery in inbox.deliveries:
            delivery.requeue()
        assert bodies(await rest.take_and_ack(delivered)) == texts[:delivered]

    @case
    async def test_a_consumer_can_be_stopped_from_its_deliver_callback(self) -> None:
        broker, other = self.broker(), self.broker()
        queue = await self.queue(broker)
        received: list[Delivery] = []
        stops: list[asyncio.Task[None]] = []
        started = asyncio.Event()

        def deliver(delivery: Delivery) -> None:
            received.append(delivery)
            started.set()
            if not stops:
                stops.append(asyncio.create_task(consumer.stop()))

        consumer = await broker.consume([Subscription(queue, 1)], deliver)
        await self.send(broker, queue, "one", "two", "three")
        async with asyncio.timeout(self.patience):
            await started.wait()
            await stops[0]

        assert bodies(received) == ["one"]
        received[0].ack()
        await self.expect_only(other, queue, "two", "three")

    @case
    async def test_a_consumer_recovers_after_its_connection_is_cut(self) -> None:
        self.require_lose()
        broker, sender = self.broker("cut off"), self.broker()
        queue = await self.queue(broker)
        inbox, consumer = await self.consume(broker, queue)
        await self.send(sender, queue, "before")
        await inbox.take_and_ack(1)

        await self.lose(broker)
        await self.send(sender, queue, "after")

        while (received := (await inbox.take_and_ack(1))[0]).body == b"before":
            assert received.redelivered, "its ack may have been lost with the connection"
        assert received.body == b"after"

        async def healthy() -> bool:
            return consumer.healthy

        await eventually(healthy, expected=True, within=self.patience)
        await self.publish(broker, message(queue, "its own"))
        assert bodies(await inbox.take_and_ack(1)) == ["its own"]


async def _ack_all(inbox: Inbox) -> None:
    while True:
        # The inbox's own timeout is longer than the test's.
        await inbox.take_and_ack(1)
