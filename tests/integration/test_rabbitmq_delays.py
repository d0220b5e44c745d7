"""Delays on a real node: longer than the ladder, and with clocks that differ."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import Outgoing
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.envelope import JSON, Envelope, encode_envelope
from taskmq.model.units import instant_text
from taskmq.testing.broker_suite import message
from taskmq.testing.runner import case
from taskmq.worker import Worker, WorkerConfig
from taskmq_rabbitmq import RabbitMQBroker
from taskmq_rabbitmq.model import delay_ladder as delay
from tests.integration.rabbitmq_case import RabbitMQCase
from tests.integration.raw_rabbitmq import Raw

pytestmark = pytest.mark.rabbitmq


class ShiftedClock(SystemClock):
    """The clock of a machine that is wrong by that many milliseconds."""

    def __init__(self, by: int) -> None:
        self._by = by

    def now_ms(self) -> int:
        return super().now_ms() + self._by


class TestLongDelays(RabbitMQCase):
    @case
    async def test_a_delay_longer_than_the_ladder_uses_all_of_it(self) -> None:
        broker = self.broker()
        queue = await self.queue(broker)
        await broker.publish(message(queue, "far", due=now() + 3 * delay.MAX_DELAY_MS), timeout=10)
        with Raw(self.process_url or "") as raw:
            # For two seconds, after four shorter waits; each of the 28 levels holds it.
            level = delay.level_name(4)
            raw.wait_until(lambda: raw.ready(level) == 1, "it waits")
            found = raw.get(level)
            assert found is not None
        assert len(found.properties.headers["CC"]) == delay.LEVELS + 1
        assert found.properties.headers["x-taskmq-eta"] > instant_text(now() + 2 * delay.MAX_DELAY_MS)

    def test_a_worker_returns_an_early_task_to_wait(self) -> None:
        async def test() -> None:
            async with self.worker() as (app, started):
                eta = now() + 1_500
                # Like a message after the longest delay, with more to come.
                await self.put(app, eta)
                assert await started.get() >= eta
                assert now() <= eta + 6_000
                assert started.empty()

        self.run(test)

    @pytest.mark.parametrize("behind", [-2_000, 2_000])
    def test_no_task_starts_early_by_the_clock_of_the_worker(self, behind: int) -> None:
        async def test() -> None:
            clock = ShiftedClock(-behind)
            async with self.worker(clock) as (app, started):
                # By the sender's clock; the broker counts from the time of sending.
                eta = now() + 1_000
                await self.put(app, eta, due=eta)
                assert await started.get() >= eta

        self.run(test)

    @asynccontextmanager
    async def worker(self, clock: SystemClock | None = None) -> AsyncIterator[tuple[TaskMQ, "asyncio.Queue[int]"]]:
        """Run a worker whose task returns its start time by the worker's clock."""
        clock = clock or SystemClock()
        app = TaskMQ(self.process_url or "", name="test", clock=clock)
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
        """Send like another process with a correct clock."""
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
