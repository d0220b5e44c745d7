"""Delays on a real node: the table of levels, delays that are longer than any, clocks that differ."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.broker import Outgoing
from taskmq.clock import SystemClock
from taskmq.envelope import JSON, Envelope, encode_envelope
from taskmq.testing.broker_suite import message
from taskmq.testing.broker_suite.case import bodies
from taskmq.testing.broker_suite.delaying import Delaying
from taskmq.testing.runner import case
from taskmq.topology import UNROUTABLE
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq import RabbitMQBroker, delay, levels
from tests.conformance import test_rabbitmq
from tests.integration.rabbitmq_case import RabbitMQCase
from tests.integration.raw_rabbitmq import Raw

pytestmark = pytest.mark.rabbitmq

WITH_LEVELS = "?delay=levels"
DAY = 86_400_000


class ShiftedClock(SystemClock):
    """The clock of a machine that is wrong by so many milliseconds."""

    def __init__(self, by: int) -> None:
        self._by = by

    def now_ms(self) -> int:
        return super().now_ms() + self._by


class TestDelaysWithLevels(RabbitMQCase, Delaying):
    options = WITH_LEVELS


@pytest.mark.matrix
class TestEverythingWithLevels(test_rabbitmq.TestRabbitMQ):
    options = WITH_LEVELS

    @case
    async def test_a_delayed_message_takes_its_place_when_it_is_due(self) -> None:
        # It may be in its queue before, between two levels: that it is ready there does not say that it is due.
        broker = self.broker()
        shard = await self._shard(broker)
        due = now() + 300
        inbox, _ = await self.consume(broker, shard, prefetch=1)

        await self.publish(broker, message(shard, "delayed", due=due), message(shard, "at once"))
        (first,) = await inbox.take(1)
        await SystemClock().sleep_until(due)
        await self.expect_ready(broker, shard, 1)
        await self.send(broker, shard, "sent last")
        first.ack()

        assert bodies([first, *await inbox.take_and_ack(2)]) == ["at once", "delayed", "sent last"]


class TestLevels(RabbitMQCase):
    options = WITH_LEVELS

    @case
    async def test_a_message_waits_in_the_longest_level_that_is_not_too_long(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        for text, delay_ms in (("a", 60_000), ("b", 89_000), ("c", 40 * DAY)):
            await broker.publish(message(queue, text, due=now() + delay_ms), timeout=10)
        with Raw(self.process_url.partition("?")[0] if self.process_url else "") as raw:
            assert raw.ready(levels.level_name(60_000)) == 2
            assert raw.ready(levels.level_name(DAY)) == 1

    @case
    async def test_a_message_that_comes_before_its_time_is_not_delivered_but_waits_on(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        inbox, consumer = await self.consume(broker, queue, prefetch=1)
        due = now() + 3_300

        # 2 s, 1 s, 200 ms, 100 ms.
        await broker.publish(message(queue, "delayed", due=due, headers={"note": "mine"}), timeout=10)
        await self.send(broker, queue, "at once")

        assert bodies(await inbox.take_and_ack(1)) == ["at once"]
        (came,) = await inbox.take_and_ack(1)
        assert due <= now() <= due + 5_000
        assert came.headers == {"note": "mine", "x-taskmq-eta": due}
        assert not came.redelivered
        await consumer.stop()
        await self.expect_only(broker, queue)

    @case
    async def test_a_thousand_messages_all_come_once_and_none_early(self) -> None:
        broker, receiver = self.broker(), self.broker()
        queue = await self.queue(broker)
        inbox, consumer = await self.consume(receiver, queue)
        start = now()
        due = {str(number): start + 500 + 7 * (number * 37 % 400) for number in range(1000)}
        await self.publish(broker, *(message(queue, text, due=instant) for text, instant in due.items()))

        seen: list[str] = []
        while len(seen) < len(due):
            for delivery in await inbox.take_and_ack(1):
                text = delivery.body.decode()
                assert now() >= due[text]
                seen.append(text)
        assert sorted(seen) == sorted(due)
        await consumer.stop()
        await self.expect_only(broker, queue)

    @case
    async def test_a_queue_that_goes_meanwhile_leaves_its_messages_where_people_look(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await broker.publish(message(queue, "one", due=now() + 300), timeout=10)
        await self.delete_queue(queue)

        inbox, _ = await self.consume(broker, UNROUTABLE)

        assert bodies(await inbox.take_and_ack(1)) == ["one"]

    @case
    async def test_senders_and_workers_may_differ_in_where_delays_wait(self) -> None:
        with_levels = self.broker()
        queue = await self.queue(with_levels)
        self.process_url = (self.process_url or "").partition("?")[0]
        with_ladder = self.broker()
        inbox, consumer = await self.consume(with_levels, queue)

        await self.publish(
            with_ladder, message(queue, "first", due=(due := now() + 400)), message(queue, "last", due=due + 800)
        )
        await self.publish(with_levels, message(queue, "middle", due=due + 400))

        assert bodies(await inbox.take_and_ack(3)) == ["first", "middle", "last"]
        assert now() >= due + 800
        await consumer.stop()

    @case
    async def test_levels_that_are_gone_are_declared_again(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await self.http("DELETE", f"exchanges/{{vhost}}/{levels.level_name(200)}")

        await broker.publish(message(queue, "one", due=now() + 240), timeout=10)

        inbox, _ = await self.consume(broker, queue)
        assert bodies(await inbox.take_and_ack(1)) == ["one"]


class TestLongDelays(RabbitMQCase):
    @case
    async def test_what_is_longer_than_the_ladder_waits_on_all_of_it(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await broker.publish(message(queue, "far", due=now() + 3 * delay.MAX_DELAY_MS), timeout=10)
        with Raw(self.process_url or "") as raw:
            highest = delay.level_name(delay.LEVELS - 1)
            raw.wait_until(lambda: raw.ready(highest) == 1, "it waits")
            found = raw.get(highest)
            assert found is not None
        # The first of 28 levels, of which each will park it.
        assert found.properties.headers["x-taskmq-eta"] > now() + 2 * delay.MAX_DELAY_MS

    @pytest.mark.parametrize("options", ["", WITH_LEVELS])
    def test_a_worker_that_gets_a_task_before_its_time_lets_it_wait_on(self, options: str) -> None:
        async def test() -> None:
            async with self.worker(options) as (app, started):
                eta = now() + 1_500
                # As what has waited for the longest delay there is, and has more before it.
                await self.put(app, eta)
                assert await started.get() >= eta
                assert now() <= eta + 6_000
                assert started.empty()

        self.run(test)

    @pytest.mark.parametrize("behind", [-2_000, 2_000])
    def test_no_task_starts_early_by_the_clock_of_the_worker(self, behind: int) -> None:
        async def test() -> None:
            clock = ShiftedClock(-behind)
            async with self.worker("", clock) as (app, started):
                # By the sender's clock; the broker counts the time from the sending.
                eta = now() + 1_000
                await self.put(app, eta, due=eta)
                assert await started.get() >= eta

        self.run(test)

    @asynccontextmanager
    async def worker(
        self, options: str, clock: SystemClock | None = None
    ) -> AsyncIterator[tuple[TaskMQ, "asyncio.Queue[int]"]]:
        """A worker whose task says at what time, by the worker's clock, it has started."""
        clock = clock or SystemClock()
        app = TaskMQ((self.process_url or "") + options, name="test", clock=clock)
        started: asyncio.Queue[int] = asyncio.Queue()

        @app.task(name="timed")
        async def timed() -> None:
            started.put_nowait(clock.now_ms())

        worker = Worker(app, WorkerConfig())
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        try:
            yield app, started
        finally:
            worker.drain()
            await running

    async def put(self, app: TaskMQ, eta: int, *, due: int | None = None) -> None:
        """Send as another process does, whose clock is right."""
        envelope = Envelope(id="job-1", task="timed", eta=eta, args=msgspec.Raw(b"[]"))
        sender: RabbitMQBroker = self.broker()
        await sender.publish(
            Outgoing(
                queue="default",
                body=encode_envelope(envelope, JSON),
                content_type=JSON,
                job_id="job-1",
                task="timed",
                due=due,
            ),
            timeout=10,
        )


def now() -> int:
    return time.time_ns() // 1_000_000
