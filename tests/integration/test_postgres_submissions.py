"""Jobs resubmitted while they are erased, lock by lock."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import DispatchedJob, JobStore, Submitted
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.driver import JobDriver, after
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.runner import eventually
from taskmq_sql import open_job_store
from taskmq_sql.postgres.ended.retention import ENDED_JOBS
from taskmq_sql.postgres.transactions import drive
from taskmq_sql.retention import forget_ended

_BLOCKED: Final = """
select exists (select from pg_locks where not granted and pid <> pg_backend_pid())"""

Options = Callable[[JobDriver], Coroutine[None, None, dict[str, Any]]]


async def _plain(_: JobDriver) -> dict[str, Any]:
    return {}


async def _unique(_: JobDriver) -> dict[str, Any]:
    return {"unique": UniqueKey(name="only one", ttl=60_000)}


async def _waiting(driver: JobDriver) -> dict[str, Any]:
    return {"detail": after(await driver.submit(queue="first"))}


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


async def _end_job(driver: JobDriver, key: str) -> DispatchedJob:
    job = await driver.dispatch_new(key=key)
    await driver.report(job, "succeeded")
    return job


@pytest.mark.parametrize("options", [_plain, _unique, _waiting])
def test_a_key_submitted_while_its_job_is_erased_is_free(job_store_url: str, options: Options) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        one, two = await _end_job(driver, "1"), await _end_job(driver, "2")
        said = await options(driver)
        again = [await driver.new(key="1", **said), await driver.new(key="2")]
        await connection.execute("begin")
        await drive(connection, forget_ended(ENDED_JOBS, [two.id]))

        # The first key is found taken before the second one has to wait for the eraser.
        submitting = asyncio.create_task(driver.store.submit(again))
        while not await probe.fetchval(_BLOCKED):
            await asyncio.sleep(0)
        await drive(connection, forget_ended(ENDED_JOBS, [one.id]))
        await connection.execute("commit")

        state = JobState.WAITING if "detail" in said else JobState.QUEUED
        assert await submitting == [
            Submitted(again[0].id, True, True, state, 1),
            Submitted(again[1].id, True, True, JobState.QUEUED, 1),
        ]
        assert await driver.state(again[0].id) is state
        if "unique" in said:
            (other,) = await driver.store.submit([await driver.new(**said)])
            assert (other.id, other.is_duplicate) == (again[0].id, True)

    _run(job_store_url, test)


@pytest.mark.parametrize("options", [_plain, _unique, _waiting])
@pytest.mark.parametrize(
    "most",
    [3, pytest.param(4, marks=pytest.mark.nightly("tests/integration/test_postgres_submissions.py"))],
)
def test_a_job_whose_namesake_is_erased_meanwhile_counts_in_its_quota(
    job_store_url: str, options: Options, most: int
) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        one, two = await _end_job(driver, "1"), await _end_job(driver, "2")
        said = await options(driver)
        again = [await driver.new(key="1", **said), await driver.new(key="2")]
        quota = Quota(tenant="", a_day=most)
        assert await driver.store.limit(Quotas(version=1, quotas={usage_name(""): quota}))
        for _ in range(2):
            await driver.submit()
        await connection.execute("begin")
        await drive(connection, forget_ended(ENDED_JOBS, [two.id]))

        submitting = asyncio.create_task(driver.store.submit(again))
        while not await probe.fetchval(_BLOCKED):
            await asyncio.sleep(0)
        await drive(connection, forget_ended(ENDED_JOBS, [one.id]))
        await connection.execute("commit")

        answers = await submitting
        assert sum(answer.is_new for answer in answers) == most - 2
        assert sum(answer.exceeded is not None for answer in answers) == 4 - most
        (usage,) = (await driver.store.quota_usage([usage_name("")])).values()
        assert usage.jobs == most
        assert (await driver.try_submit()).exceeded is not None

    _run(job_store_url, test)


def test_the_key_of_an_erased_job_is_free(job_store_url: str) -> None:
    async def test(driver: JobDriver, connection: Any, probe: Any) -> None:
        job = await _end_job(driver, "1")
        await connection.execute("delete from taskmq.job_history where id = $1", job.id)
        again = await driver.new(key="1")

        assert await driver.store.submit([again]) == [Submitted(again.id, True, True, JobState.QUEUED, 1)]

        assert await probe.fetchval("select id::text from taskmq.job_key where key = '1'") == again.id

    _run(job_store_url, test)


@pytest.mark.parametrize("earlier", [0, 1])
def test_an_open_submission_keeps_the_steps_of_its_tenant_waiting_and_no_others(
    job_store_url: str, earlier: int
) -> None:
    async def check(driver: JobDriver, connection: Any, probe: Any) -> None:
        del probe
        runs = RunDriver(driver.store)
        quota = Quota(tenant="*", a_day=9)
        assert await driver.store.limit(Quotas(version=1, quotas={usage_name("*"): quota}))
        for _ in range(earlier):
            assert (await driver.try_submit(tenant="acme")).is_new
        async with connection.transaction():
            await driver.store.submit([await driver.new(tenant="acme")], connection=connection)
            found = [await runs.start({"s": {"task": "t"}}, tenant=tenant) for tenant in ("acme", "", "acme")]
            await runs.settle()

            assert [await runs.states(run) for run in found] == [{"s": "waiting"}, {"s": "running"}, {"s": "waiting"}]
            assert (await runs.step(found[0], "s")).quota == "other jobs of tenant 'acme' are being counted"

        async def states() -> list[dict[str, str]]:
            await runs.runs.fire_timers()
            await runs.settle()
            return [await runs.states(run) for run in found]

        await eventually(states, [{"s": "running"}] * 3, within=30)
        assert (await driver.store.quota_usage([usage_name("acme")]))[usage_name("acme")].jobs == 3 + earlier

    _run(job_store_url, check)
