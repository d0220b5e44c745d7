"""Idempotency keys of stored jobs in an app with Redis: the store keeps them, also while their jobs sleep."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from taskmq import Context, Job, TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.operations.retention import erase_jobs
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time


class Shop:
    """An app with a scheduler and a worker.

    Attributes:
        runs: order and fencing token of each run.
    """

    def __init__(self, state: str, store: str) -> None:
        self.runs: list[tuple[str, int]] = []
        self._urls = new_url(), state, store
        self.app = self._build()
        self._worker = Worker(self._build(), WorkerConfig(name="w1", grace=5.0))
        self._working: asyncio.Task[object] | None = None

    def _build(self) -> TaskMQ:
        url, state, store = self._urls
        app = TaskMQ(url, state=state, store=store, name="shop")

        @app.task(name="bill", queue="bills", idempotency_key="order", idempotency_scope="orders", retry=None)
        async def bill(context: Context, order: str, asks: bool = False) -> str:
            self.runs.append((order, context.fencing_token))
            if asks:
                await context.await_for("approved", bool)
            return f"{order} by {context.job_id}"

        return app

    @property
    def orders(self) -> list[str]:
        """Orders of the runs."""
        return [order for order, _ in self.runs]

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None, None]:
        scheduler = Scheduler(self._build())
        async with self.app:
            scheduling = asyncio.create_task(scheduler.run())
            await until(lambda: scheduler.not_ready() is None)
            self._working = asyncio.create_task(self._worker.run())
            try:
                yield
            finally:
                await self._stop_worker()
                scheduler.stop()
                await scheduling

    async def replace_worker(self) -> None:
        """Stop the worker, and start another one."""
        await self._stop_worker()
        self._worker = Worker(self._build(), WorkerConfig(name="w2", grace=5.0))
        self._working = asyncio.create_task(self._worker.run())

    async def _stop_worker(self) -> None:
        assert self._working is not None
        self._worker.drain()
        await self._working

    async def submit(self, order: str, *, asks: bool = False, tenant: str | None = None) -> Job[str]:
        return await self.app.jobs.asubmit("bill", order, asks, tenant=tenant)

    async def submit_asleep(self, order: str) -> Job[str]:
        """Submit a job, and wait until it waits for its signal."""
        job = await self.submit(order, asks=True)

        async def is_asleep() -> bool:
            return bool((await self.app.jobs.aget(job.id)).suspension)

        await until(is_asleep)
        return job


@pytest.fixture(
    params=[pytest.param("sqlite", marks=pytest.mark.nightly("tests/integration/test_stored_keys.py")), "postgresql"]
)
def shop(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> Shop:
    store = f"sqlite:///{tmp_path}/jobs.db" if request.param == "sqlite" else request.getfixturevalue("job_store_url")
    return Shop(redis_url, store)


async def test_a_job_keeps_its_key_while_it_sleeps_and_wakes_at_another_worker(shop: Shop) -> None:
    async with shop.working():
        first = await shop.submit_asleep("17")
        second = await shop.submit("17")
        await shop.replace_worker()
        # The new worker has had time for the second job.
        other = await shop.submit("18")
        assert await other.aresult(timeout="30s") == f"18 by {other.id}"
        assert shop.orders == ["17", "18"]

        await shop.app.jobs.asignal(first.id, "approved", True)

        assert {await job.aresult(timeout="30s") for job in (first, second)} == {f"17 by {first.id}"}
        assert shop.orders == ["17", "18", "17"]
        assert shop.runs[2][1] > shop.runs[0][1] > 0


@pytest.mark.parametrize(
    "end",
    [
        JobState.CANCELLED,
        pytest.param(JobState.EXPIRED, marks=pytest.mark.nightly("tests/integration/test_stored_keys.py")),
    ],
)
async def test_the_key_of_a_job_that_ends_while_it_sleeps_is_free(shop: Shop, end: JobState) -> None:
    async with shop.working():
        first = await shop.submit_asleep("17")
        second = await shop.submit("17")
        other = await shop.submit("18")
        assert await other.aresult(timeout="30s") == f"18 by {other.id}"
        assert shop.orders == ["17", "18"]

        if end is JobState.CANCELLED:
            await first.acancel()
        else:
            await shop.app.jobs.achange(first.id, expires=datetime.now(UTC))
            await shop.app.jobs.asignal(first.id, "approved", True)

        assert await second.aresult(timeout="30s") == f"17 by {second.id}"
        assert (await first.aoutcome(timeout="30s")).state is end
        assert shop.orders == ["17", "18", "17"]


async def test_sent_and_stored_jobs_share_no_key(shop: Shop) -> None:
    async with shop.working():
        first = await shop.submit_asleep("17")

        sent = await shop.app.tasks["bill"].asend("17")

        assert await sent.aresult(timeout="30s") == f"17 by {sent.id}"
        await shop.app.jobs.asignal(first.id, "approved", True)
        assert await first.aresult(timeout="30s") == f"17 by {first.id}"


async def test_an_erased_job_leaves_no_result_under_its_key(shop: Shop) -> None:
    async with shop.working():
        first, second = [await shop.submit("17", tenant="acme") for _ in range(2)]
        assert len({await job.aresult(timeout="30s") for job in (first, second)}) == 1

        erased = await erase_jobs(shop.app, JobFilter(tenant="acme"), by=Actor(user="ann"))

        assert (erased.jobs, erased.left) == (2, 0)
        claims = shop.app.sessions.current().stores.claims
        assert claims is not None
        assert await claims.find("@acme:once:orders:17") is None
        again = await shop.submit("17", tenant="acme")
        assert await again.aresult(timeout="30s") == f"17 by {again.id}"
