"""Stored jobs that run for longer than RabbitMQ's consumer timeout; no state is needed."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from taskmq import TaskMQ
from taskmq.client.plugins import open_broker
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from taskmq.testing.runner import case, eventually
from taskmq.worker import Worker, WorkerConfig
from tests.integration.rabbitmq_case import TunedNodeCase
from tests.unit.app_kit import use_session
from tests.unit.store_kit import StagedStore

pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow, pytest.mark.timeout(120)]

ALLOWED = 4


class TestDetached(TunedNodeCase):
    deadline = 100
    patience = 30
    # On 4.3 each consumer states a very long timeout itself.
    version = None if os.environ.get("TASKMQ_TEST_RABBITMQ", "3.10") < "4.3" else "3.10"
    # Each channel checks it once per tick, which is a minute by default.
    settings: ClassVar = {"consumer_timeout": ALLOWED * 1000, "channel_tick_interval": 1000}
    options = f"?consumer_timeout={ALLOWED}"

    @pytest.fixture(autouse=True)
    def _log(self, caplog: pytest.LogCaptureFixture) -> None:
        self.log = caplog

    @asynccontextmanager
    async def scheduling(self, store: StagedStore) -> AsyncIterator[TaskMQ]:
        """Build an app whose jobs are dispatched by its own scheduler."""
        assert self.process_url is not None
        app = TaskMQ(self.process_url, name="shop")
        app.task(name="long", queue="work")(_do_nothing)
        broker = open_broker(self.process_url, BrokerOptions(name="scheduler"))
        session = Session(broker, None, send_timeout=10.0, store=store)
        use_session(app, lambda: session)
        scheduler = Scheduler(app)
        running = asyncio.create_task(scheduler.run())
        try:
            yield app
        finally:
            scheduler.stop()
            await running

    async def worker(self, app: TaskMQ, name: str) -> None:
        """Run a worker until the end of the test."""
        worker = Worker(app, WorkerConfig(name=name, grace=30))
        running = asyncio.create_task(worker.run())

        async def stop() -> None:
            worker.requeue_now()
            await running

        self.opened.push_async_callback(stop)
        await asyncio.wait_for(worker.is_ready.wait(), self.patience)

    async def time_is_over(self) -> None:
        """Wait until the node has requeued a delivery made at the time of this call."""
        broker, other = self.broker(), self.broker()
        queue = await self.queue(other)
        inbox, consumer = await self.consume(broker, queue, prefetch=1)
        await self.send(other, queue, "witness")
        await inbox.take(1)
        (again,) = await inbox.take(1)
        again.ack()
        await consumer.stop()

    @case
    async def test_a_job_runs_once_however_long_it_takes(self) -> None:
        store = StagedStore(clock=SystemClock())
        runs: list[str] = []
        is_over = asyncio.Event()

        async def work(name: str) -> str:
            runs.append(name)
            if name == "long":
                await is_over.wait()
            return name

        async with self.scheduling(store) as app:
            for name in "ab":
                worker_app = TaskMQ(self.process_url, name="shop")
                worker_app.task(name="long", queue="work")(work)
                await self.worker(worker_app, name)
            job = await app.jobs.asubmit("long", "long")

            async def events() -> list[str]:
                return [event.kind for event in await app.jobs.ahistory(job.id)]

            await eventually(events, ["detached"], within=self.patience)
            await self.time_is_over()
            quick = await app.jobs.asubmit("long", "quick")
            assert await quick.aresult(timeout=self.patience) == "quick"
            is_over.set()

            assert await job.aresult(timeout=self.patience) == "long"
            record = await app.jobs.aget(job.id)
            assert (record.state, record.attempt, record.token >> 32) == (JobState.SUCCEEDED, 1, 1)
            assert runs == ["long", "quick"]
            assert "'work.jobs': a delivery was unsettled" not in self.log.text


async def _do_nothing(name: str) -> str:
    return name
