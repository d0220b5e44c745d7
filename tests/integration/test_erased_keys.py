"""Erasure of a job whose idempotency key the state decides, with the result that Redis keeps under the key."""

import asyncio
from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.identity import Actor
from taskmq.contracts.stores import Done
from taskmq.model.jobs.filters import JobFilter
from taskmq.operations.retention import erase_jobs
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.servers.waiting import until
from tests.unit.app_kit import new_url

pytestmark = pytest.mark.real_time

_KEY = "@acme:once:orders:17"


async def test_an_erased_job_leaves_no_result_under_its_key_in_redis(redis_url: str, tmp_path: Path) -> None:
    runs: list[str] = []
    url = new_url()

    def build() -> TaskMQ:
        app = TaskMQ(url, state=redis_url, store=f"sqlite:///{tmp_path}/jobs.db", name="shop")

        @app.task(name="bill", queue="bills", idempotency_key="order", idempotency_scope="orders")
        async def bill(order: str) -> str:
            runs.append(order)
            return f"bill {len(runs)} of a person"

        return app

    scheduler, worker = Scheduler(build()), Worker(build(), WorkerConfig(name="w", grace=5.0))
    async with build() as app:
        running = [asyncio.create_task(scheduler.run())]
        await until(lambda: scheduler.not_ready() is None)
        running.append(asyncio.create_task(worker.run()))
        claims = app.sessions.current().stores.claims
        assert claims is not None
        try:
            first, second = [await app.jobs.asubmit("bill", "17", tenant="acme") for _ in range(2)]
            assert {await job.aresult(timeout="30s") for job in (first, second)} == {"bill 1 of a person"}
            done = await claims.find(_KEY)
            assert isinstance(done, Done)

            erased = await erase_jobs(app, JobFilter(tenant="acme"), by=Actor(user="ann"))

            assert (erased.jobs, erased.left) == (2, 0)
            assert await claims.find(_KEY) is None
            again = await app.jobs.asubmit("bill", "17", tenant="acme")
            assert await again.aresult(timeout="30s") == "bill 2 of a person"
        finally:
            worker.drain()
            scheduler.stop()
            await asyncio.gather(*running)
