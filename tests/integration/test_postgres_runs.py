"""Runs in PostgreSQL that change while a scheduler advances them, lock by lock."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Final, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.jobs import Advanced, FindHold, NewJob, PartitionHold, find_no_hold
from taskmq.model.runs.records import RunRecord, StepJob
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq_sql import open_job_store

_WAITING: Final = "select count(*) from pg_locks where not granted"
_LOCK: Final = "select from taskmq.run where id = $1 for update"
# Runs can be read, and not changed together with their jobs.
_LOCK_JOBS: Final = "begin; lock table taskmq.job in exclusive mode"
_JOBS: Final = "select id::text from taskmq.job"


class _Schedulers:
    """Two schedulers that advance the same run, and a connection that locks or changes it.

    Attributes:
        made: ids of the jobs that the schedulers built, whether or not they were submitted.
    """

    def __init__(self, drivers: list[RunDriver], connection: Any) -> None:
        self.drivers = drivers
        self.connection = connection
        self.made: list[str] = []

    def advance(
        self, driver: RunDriver, run: str, *, find_hold: FindHold = find_no_hold
    ) -> "asyncio.Task[dict[str, Advanced]]":
        """Start to advance a run."""
        return asyncio.create_task(driver.runs.advance([run], self._make_job, find_hold))

    async def until_waiting(self, count: int) -> None:
        """Return once this number of statements wait for a lock."""
        while await self.connection.fetchval(_WAITING) < count:
            await asyncio.sleep(0)

    async def jobs(self) -> list[str]:
        """Return the ids of all jobs."""
        return [row[0] for row in await self.connection.fetch(_JOBS)]

    def _make_job(self, run: RunRecord, job: StepJob) -> NewJob:
        self.made.append(job.id)
        return NewJob(id=job.id, tenant=run.tenant, task=job.task, queue="q", body=b"[[],{}]")


def _run(url: str, test: Callable[[_Schedulers, str], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            stores = [open_job_store(url, BrokerOptions(name=name)) for name in ("one", "two")]
            for store in stores:
                stack.push_async_callback(store.aclose)
            connection: Any = await cast("Any", asyncpg).connect(url)
            stack.push_async_callback(connection.close)
            drivers = [RunDriver(store) for store in stores]
            run = await drivers[0].start({"first": {"task": "t"}, "second": {"task": "t", "needs": ["first"]}})
            await test(_Schedulers(drivers, connection), run)

    asyncio.run(main())


def test_a_run_that_changes_after_it_was_read_is_read_again(job_store_url: str) -> None:
    async def test(schedulers: _Schedulers, run: str) -> None:
        connection, (driver, _) = schedulers.connection, schedulers.drivers
        await connection.execute(_LOCK_JOBS)
        advancing = schedulers.advance(driver, run)
        await schedulers.until_waiting(1)
        await connection.execute("update taskmq.run set value = value where id = $1", run)
        await connection.execute("commit")

        advanced = (await advancing)[run]

        assert len(schedulers.made) == 2
        assert await schedulers.jobs() == schedulers.made[1:]
        assert [lane.queue for lane in advanced.lanes] == ["q"]
        assert (await driver.step(run, "first")).job == schedulers.made[1]
        assert await driver.runs.pending(limit=10) == []

    _run(job_store_url, test)


def test_two_schedulers_that_have_read_a_run_start_its_step_once(job_store_url: str) -> None:
    async def test(schedulers: _Schedulers, run: str) -> None:
        connection, drivers = schedulers.connection, schedulers.drivers
        await connection.execute(_LOCK_JOBS)
        advancing = [schedulers.advance(driver, run) for driver in drivers]
        await schedulers.until_waiting(2)
        await connection.execute("commit")

        # The slower one may find the run locked, and leaves it then.
        found = [one for each in advancing if (one := (await each).get(run)) is not None]

        assert len(schedulers.made) == 2
        assert len(await schedulers.jobs()) == 1
        assert sum(len(each.lanes) for each in found) == 1
        assert not any(each.has_more for each in found)

    _run(job_store_url, test)


def test_a_scheduler_leaves_a_run_that_another_transaction_has_locked(job_store_url: str) -> None:
    async def test(schedulers: _Schedulers, run: str) -> None:
        connection, (driver, _) = schedulers.connection, schedulers.drivers
        await connection.execute("begin")
        await connection.fetch(_LOCK, run)

        assert await schedulers.advance(driver, run) == {}
        assert await schedulers.jobs() == []

        await connection.execute("commit")
        assert len((await schedulers.advance(driver, run))[run].lanes) == 1

    _run(job_store_url, test)


def test_an_open_transaction_that_starts_a_run_delays_no_other_one_of_its_workflow(job_store_url: str) -> None:
    async def test(schedulers: _Schedulers, _: str) -> None:
        connection, driver = schedulers.connection, schedulers.drivers[0]
        await driver.runs.put_workflow("", "limited", content_of({"s": {"value": 1}}, max_active_runs=1))
        first, second = [await driver.new_run(workflow="limited") for _ in range(2)]
        async with connection.transaction():
            await driver.runs.start([first], connection=connection)
            await driver.runs.start([second])
            await driver.settle()

            assert (await driver.run(second.id)).state == "succeeded"
        await driver.settle()
        assert (await driver.run(first.id)).state == "succeeded"

    _run(job_store_url, test)


def test_a_run_that_is_advanced_alone_dispatches_its_job_in_the_same_statement(job_store_url: str) -> None:
    async def test(schedulers: _Schedulers, run: str) -> None:
        driver = schedulers.drivers[0]
        partition = driver.schedulers.partition_of("q")
        hold = PartitionHold(partition, await driver.epoch(partition))

        batch = (await schedulers.advance(driver, run, find_hold=lambda _: hold))[run].batch

        assert batch is not None
        assert [(job.id, job.queue) for job in batch.jobs] == [(schedulers.made[0], "q")]
        assert await driver.state(schedulers.made[0]) is JobState.DISPATCHED

    _run(job_store_url, test)
