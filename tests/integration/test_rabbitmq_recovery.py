"""Losses: connections cut, the node killed, queues deleted under their consumers."""

import asyncio
import gc
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from taskmq.contracts.broker import Delivery, Subscription
from taskmq.errors import QueueMissing, SendError
from taskmq.model.topology import dead_letter_queue
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import bodies, peek
from taskmq.testing.runner import case, eventually, raises
from taskmq_rabbitmq.consume.consumer import RabbitMQConsumer
from tests.integration.rabbitmq_case import CUT_OFF, OwnNodeCase, RabbitMQCase

pytestmark = pytest.mark.rabbitmq

FILES = Path("/proc/self/fd")


class Acking:
    """A receiver that acknowledges and counts all messages."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.republished = 0

    def __call__(self, delivery: Delivery) -> None:
        self.seen[delivery.body.decode()] += 1
        self.republished += "x-taskmq-republished" in delivery.headers
        delivery.ack()


@pytest.mark.timeout(120)
class TestCuts(RabbitMQCase):
    deadline = 90

    @case
    async def test_no_confirmed_message_is_lost_and_consumers_return(self) -> None:
        sender, receiver = self.broker(CUT_OFF), self.broker(CUT_OFF)
        queue = await self.queue(receiver)
        acking = Acking()
        consumer = await receiver.consume([Subscription(queue, 50)], acking)
        futures: list[asyncio.Future[None]] = []
        cutting = asyncio.create_task(self.cut_again_and_again(lambda: sum(future.done() for future in futures)))
        for number in range(2000):
            futures.append(sender.publish(message(queue, str(number)), timeout=60))
            if number % 10 == 9:
                await asyncio.sleep(0.005)
        await asyncio.wait(futures)
        cutting.cancel()

        assert [future.exception() for future in futures] == [None] * 2000
        await self.until(lambda: len(acking.seen) == 2000)
        await self.until(lambda: consumer.healthy)
        assert set(acking.seen) == {str(number) for number in range(2000)}

    @case
    async def test_a_republished_message_keeps_its_id_and_is_marked(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, "the channel is open")
        self.proxy.stall(True)
        sent = message(queue, "one")
        future = broker.publish(sent, timeout=20)
        await asyncio.sleep(0)

        self.proxy.cut()
        self.proxy.stall(False)
        await future

        inbox, _ = await self.consume(other, queue)
        (_, again) = await inbox.take_and_ack(2)
        assert again.message_id == sent.job_id
        assert again.headers == {"x-taskmq-republished": 1}

    @case
    async def test_order_is_kept_over_a_cut(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(broker)
        futures = [broker.publish(message(queue, f"{number:04}"), timeout=30) for number in range(3000)]
        await asyncio.sleep(0.05)
        self.proxy.cut()
        await asyncio.gather(*futures)

        inbox, _ = await self.consume(other, queue, prefetch=500)
        (stats,) = await other.stats([queue])
        came: list[str] = []
        while not came or came[-1] != "2999":
            came += bodies(await inbox.take_and_ack(1))
        first_times = list(dict.fromkeys(came))
        assert first_times == [f"{number:04}" for number in range(3000)]
        assert stats.queue == queue

    @case
    async def test_a_consumer_is_unhealthy_while_it_is_disconnected(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(other)
        inbox, consumer = await self.consume(broker, queue)
        assert consumer.healthy

        self.proxy.refuse(True)
        self.proxy.cut()
        await self.until(lambda: not consumer.healthy)
        self.proxy.refuse(False)
        await self.until(lambda: consumer.healthy)

        await self.send(other, queue, "one")
        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_late_settling_is_counted(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue = await self.queue(other)
        await self.send(other, queue, "one", "two")
        inbox, consumer = await self.consume(broker, queue, prefetch=2)
        assert isinstance(consumer, RabbitMQConsumer)
        one, two = await inbox.take(2)

        self.proxy.cut()
        again = await inbox.take(2)
        one.ack()
        one.ack()
        two.requeue()

        assert broker.stale_settles == consumer.stale_settles == 2
        assert bodies(again) == ["one", "two"]

    @case
    async def test_a_stopped_consumer_stays_stopped_after_a_cut(self) -> None:
        broker, other = self.broker(CUT_OFF), self.broker()
        queue, second = await self.queue(other), await self.queue(other)
        inbox, consumer = await self.consume(broker, queue)
        await consumer.stop()

        self.proxy.cut()
        later, _ = await self.consume(broker, second)
        await self.send(other, second, "one")
        assert bodies(await later.take_and_ack(1)) == ["one"]

        await self.send(other, queue, "two")
        await self.expect_only(other, queue, "two")
        assert not inbox.deliveries
        assert not consumer.healthy

    async def cut_again_and_again(self, confirmed: Callable[[], int]) -> None:
        """Cut often, and never twice without a confirm in between, so that a slow machine makes progress as well."""
        cut_at = 0

        async def is_further() -> bool:
            return confirmed() > cut_at

        while True:
            await asyncio.sleep(0.15)
            await eventually(is_further, True, within=20)
            cut_at = confirmed()
            self.proxy.cut()

    async def until(self, holds: Callable[[], bool]) -> None:
        async def look() -> bool:
            return holds()

        await eventually(look, True, within=20)


class TestDeletedQueues(RabbitMQCase):
    @case
    async def test_a_taskmq_queue_deleted_while_consumed_returns(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        other = await self.queue(broker)
        inbox, consumer = await self.consume(broker, queue, other, prefetch=1)
        await self.send(broker, other, "held")
        (held,) = await inbox.take(1)

        await self.delete_queue(queue)
        await self.send(broker, queue, "one")
        assert bodies(await inbox.take_and_ack(1)) == ["one"]

        # The other queue's consumer was not affected.
        held.ack()
        assert broker.stale_settles == 0
        assert consumer.healthy

    @case
    async def test_a_deleted_foreign_queue_is_consumed_again_once_it_exists(self) -> None:
        broker, owner = self.broker(), self.broker()
        work = self.new_queue()
        await owner.declare([work])
        inbox, consumer = await self.consume(broker, work.name)

        async def healthy() -> bool:
            return consumer.healthy

        await self.delete_queue(work.name)
        await eventually(healthy, False, within=self.patience)
        await self.send(owner, work.name, "one")

        assert bodies(await inbox.take_and_ack(1)) == ["one"]
        assert consumer.healthy

    @case
    async def test_a_queue_that_never_existed_is_missing(self) -> None:
        broker = self.broker()

        with raises(QueueMissing):
            await self.consume(broker, "no.such.queue")

    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_letters.py::test_a_long_queue_keeps_its_order_after_deep_and_shallow_reads"
    )
    @case
    async def test_thirty_reads_keep_the_order(self) -> None:
        broker = self.broker()
        dead = dead_letter_queue(await self.queue(broker))
        texts = [str(number) for number in range(40)]
        await self.send(broker, dead, *texts)

        for look in range(30):
            async with peek(broker, dead, limit=5 + look) as held:
                assert bodies(held) == texts[: 5 + look]

        await self.expect_only(broker, dead, *texts)

    @case
    async def test_a_replay_takes_the_selected_letters_and_keeps_the_order_of_the_rest(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        dead = dead_letter_queue(queue)
        await self.send(broker, dead, *"abcdef")

        async with peek(broker, dead, limit=5) as held:
            for delivery in held[::2]:
                await self.send(broker, queue, delivery.body.decode())
                delivery.ack()

        await self.expect_only(broker, queue, *"ace")
        await self.expect_only(broker, dead, *"bdf")

    @case
    async def test_closing_leaves_nothing_behind(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            files = len([*FILES.iterdir()])
            for _ in range(5):
                broker = self.open_broker()
                queue = await self.queue(broker)
                await self.send(broker, queue, *"abc")
                inbox, _ = await self.consume(broker, queue, prefetch=2)
                await inbox.take(2)
                async with peek(broker, queue, limit=5):
                    pass
                await broker.aclose()
                del broker, inbox
            await asyncio.sleep(0)
            gc.collect()
            assert len([*FILES.iterdir()]) == files
            assert len(asyncio.all_tasks()) == 1
        assert [str(warning.message) for warning in caught] == []

    @case
    async def test_at_most_the_prefetch_is_delivered(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.send(broker, queue, *map(str, range(100)))
        inbox, _ = await self.consume(broker, queue, prefetch=7)

        for _ in range(10):
            taken = await inbox.take(7)
            await self.expect_ready(broker, queue, 100 - len(inbox.deliveries))
            assert not inbox.untaken
            for delivery in taken:
                delivery.ack()


@pytest.mark.slow
@pytest.mark.timeout(150)
class TestKilled(OwnNodeCase):
    deadline = 140
    # A message forwarded to a queue that has not started yet is forwarded again after this time; by default 3 min.
    advanced_config = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 5000}]}]."

    @pytest.mark.nightly(
        "tests/integration/test_rabbitmq_recovery.py::test_a_node_killed_right_after_declaring_queues_keeps_everything_confirmed"
    )
    @case
    async def test_a_killed_and_restarted_node_has_all_confirmed_messages(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        acking = Acking()
        consumer = await broker.consume([Subscription(queue, 50)], acking)
        due = int(time.time() * 1000) + 15_000
        await broker.publish(message(queue, "delayed", due=due), timeout=10)

        futures: list[asyncio.Future[None]] = []
        killing: asyncio.Task[None] | None = None
        for number in range(1000):
            futures.append(broker.publish(message(queue, str(number)), timeout=80))
            if number % 10 == 9:
                await asyncio.sleep(0.005)
            if number == 300:
                killing = asyncio.create_task(asyncio.to_thread(self.kill_and_restart))
        assert killing is not None
        await asyncio.wait(futures)
        await killing

        errors = [future.exception() for future in futures if future.exception() is not None]
        assert all(isinstance(error, SendError) for error in errors)
        confirmed = {str(number) for number, future in enumerate(futures) if future.exception() is None}
        assert len(confirmed) == 1000

        async def missing() -> set[str]:
            return (confirmed | {"delayed"}) - set(acking.seen)

        await eventually(missing, set[str](), within=40)
        assert time.time() * 1000 >= due
        assert consumer.healthy

    @case
    async def test_a_node_killed_right_after_declaring_queues_keeps_everything_confirmed(self) -> None:
        broker = self.broker()
        work = self.new_queue()
        queues = work.physical
        await broker.declare([work])
        await self.publish(broker, *(message(queue, queue) for queue in queues))
        await asyncio.to_thread(self.kill_and_restart)

        acking = Acking()
        await broker.consume([Subscription(queue, 50) for queue in queues], acking)

        async def seen_ids() -> set[str]:
            return set(acking.seen)

        await eventually(seen_ids, set(queues), within=40)

    def kill_and_restart(self) -> None:
        self.server.kill()
        self.server.start()
