"""The job store behind PgBouncer: session pooling works, transaction pooling is refused with a remedy."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore, NewJob
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import StoreUnavailable
from taskmq.model.envelope import new_job_id
from taskmq_sql import open_job_store
from tests.servers import PgBouncer
from tests.servers.pgbouncer import PoolMode


@asynccontextmanager
async def _open_store(url: str) -> AsyncGenerator[JobStore, None]:
    store = open_job_store(url, BrokerOptions(name="pooled"))
    try:
        yield store
    finally:
        await store.aclose()


def _job() -> NewJob:
    return NewJob(id=new_job_id(SystemClock().now_ms(), uuid4().bytes), task="t", queue="work", body=b'{"task":"t"}')


def test_a_session_pooler_is_not_a_finding(job_store_url: str) -> None:
    async def main(url: str) -> None:
        async with _open_store(url) as store:
            await store.submit([_job()])
            assert [finding.level for finding in await store.diagnose()] == ["ok"]
            assert await store.count_jobs() == 1

    with PgBouncer(job_store_url, mode="session") as pooler:
        asyncio.run(main(pooler.url))


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_transaction_pooler_is_a_problem_with_its_remedy(job_store_url: str, mode: PoolMode) -> None:
    async def main(url: str) -> None:
        async with _open_store(url) as store:
            (finding,) = await store.diagnose()
            assert finding.level == "problem"
            assert "pool_mode = session" in finding.remedy

    with PgBouncer(job_store_url, mode=mode) as pooler:
        asyncio.run(main(pooler.url))


def test_work_behind_a_transaction_pooler_is_refused_with_an_explanation(job_store_url: str) -> None:
    async def work(store: JobStore) -> None:
        await store.submit([_job()])
        await store.list_jobs()
        await store.dispatching.leases.find("partition:1")

    async def main(url: str) -> None:
        async with _open_store(url) as first, _open_store(url) as second:
            with pytest.raises(StoreUnavailable, match="pool_mode = session"):
                await asyncio.gather(*(work(store) for store in (first, second) * 10))

    with PgBouncer(job_store_url, mode="transaction") as pooler:
        asyncio.run(main(pooler.url))
