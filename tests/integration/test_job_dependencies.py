"""A job that ends while a dependent job is submitted: both orders, lock by lock."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import JobStore, Submitted
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import JobDriver, after
from taskmq_sql import open_job_store
from taskmq_sql.postgres.dependencies import find_upstream
from taskmq_sql.postgres.ended.endings import Ending, end

_DEPENDENTS: Final = int(os.environ.get("TASKMQ_TEST_DEPENDENTS", "2000"))
_BLOCKED: Final = """
select exists (select from pg_locks where not granted and pid <> pg_backend_pid())"""


async def _until_blocked(probe: Any) -> None:
    """Wait until a statement waits for the lock of another one."""
    while not await probe.fetchval(_BLOCKED):
        await asyncio.sleep(0)


def _run(url: str, test: Callable[[JobDriver, Any, Any], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        store: JobStore = open_job_store(url, BrokerOptions(name="race"))
        connection: Any = await asyncpg.connect(url)
        probe: Any = await asyncpg.connect(url)
        try:
            await test(JobDriver(store), connection, probe)
        finally:
            await store.aclose()
            await connection.close()
            await probe.close()

    asyncio.run(main())


@pytest.mark.parametrize(("kind", "expected"), [("succeeded", JobState.QUEUED), ("failed", JobState.UPSTREAM_FAILED)])
def test_an_end_during_a_submission_waits_for_it_and_is_reported(
    job_store_url: str, kind: Any, expected: JobState
) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        first = await driver.dispatch_new(queue="first")
        child = await driver.new(detail=after(first))
        await connection.execute("begin")
        (answer,) = await driver.store.submit([child], connection=connection)
        assert answer == Submitted(child.id, True, True, JobState.WAITING, 1)

        ending = asyncio.create_task(driver.report(first, kind))
        await _until_blocked(probe)
        await connection.execute("commit")

        assert (await ending).has_dependents
        assert await driver.state(child.id) is JobState.WAITING
        await driver.release()
        assert await driver.state(child.id) is expected

    _run(job_store_url, test)


@pytest.mark.parametrize(
    ("state", "expected"), [(JobState.SUCCEEDED, JobState.QUEUED), (JobState.FAILED, JobState.UPSTREAM_FAILED)]
)
def test_a_submission_during_an_end_waits_for_it_and_uses_its_outcome(
    job_store_url: str, state: JobState, expected: JobState
) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        first = await driver.dispatch_new(queue="first")
        child = await driver.new(detail=after(first))
        await connection.execute("begin")
        assert await end(connection, [Ending(id=first.id, token=first.token, state=state)])

        submitting = asyncio.create_task(driver.store.submit([child]))
        await _until_blocked(probe)
        await connection.execute("commit")

        assert (await submitting)[0].is_new
        await driver.release()
        assert await driver.state(child.id) is expected

    _run(job_store_url, test)


def test_a_cancellation_during_a_submission_waits_for_it_without_a_deadlock(job_store_url: str) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        first = await driver.submit(queue="first")
        child = await driver.new(detail=after(first))
        # In a deadlock, the server would give up this connection at once.
        await connection.execute("set deadlock_timeout = '10ms'")
        await connection.execute("begin")
        await find_upstream(connection, [first.id])
        cancelling = asyncio.create_task(driver.update(first, JobState.CANCELLED, kind="cancel"))
        await _until_blocked(probe)

        await driver.store.submit([child], connection=connection)
        await connection.execute("commit")

        assert await cancelling is not None
        await driver.release()
        assert await driver.state(child.id) is JobState.UPSTREAM_FAILED

    _run(job_store_url, test)


def test_a_rolled_back_submission_leaves_no_dependency(job_store_url: str) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        first = await driver.dispatch_new(queue="first")
        await connection.execute("begin")
        await driver.store.submit([await driver.new(detail=after(first))], connection=connection)
        ending = asyncio.create_task(driver.report(first, "succeeded"))
        await _until_blocked(probe)
        await connection.execute("rollback")

        assert not (await ending).has_dependents
        assert await probe.fetchval("select count(*) from taskmq.dependency") == 0

    _run(job_store_url, test)


def test_many_dependents_are_released_in_short_transactions_beside_others(job_store_url: str) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        first = await driver.dispatch_new(queue="first")
        for _ in range(0, _DEPENDENTS, 500):
            await driver.store.submit([await driver.new(detail=after(first)) for _ in range(500)])
        await driver.expect_accepted(first, "succeeded")
        done = {"queues": await connection.fetchval("select count(*) from taskmq.ready")}
        rounds = 0
        while True:
            # An interrupted call has no effect.
            if rounds % 3 == 1:
                stopped = asyncio.create_task(driver.schedulers.release_dependents())
                await asyncio.sleep(0)
                stopped.cancel()
                await asyncio.gather(stopped, return_exceptions=True)
            released = await driver.schedulers.release_dependents()
            now = await probe.fetchval("select count(*) from taskmq.ready")
            assert now - done["queues"] <= 1_000
            done["queues"] = now
            rounds += 1
            if not released.is_more:
                break

        assert now == _DEPENDENTS
        assert await driver.store.count_jobs(JobFilter(states=frozenset({JobState.WAITING}))) == 0
        assert await probe.fetchval("select count(*) from taskmq.dependency") == 0

    _run(job_store_url, test)
