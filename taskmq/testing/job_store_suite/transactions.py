"""Tests of submission in a transaction of the caller."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from taskmq.contracts.jobs import JobStore, RunPlace
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import ids
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq.testing.job_store_suite.uniqueness.submissions import duplicate_of, unique
from taskmq.testing.runner import case, raises


class _RollBack(Exception):
    pass


class JobTransactions(JobStoreCase):
    """Guarantees of `submit(connection=...)`, for stores that share their database with the caller's data.

    class TestMine(JobTransactions, JobStoreSuite): ...
    """

    def transaction(self, store: JobStore) -> AbstractAsyncContextManager[Any]:
        """Open a transaction on the test's database; its value is passed as `connection`.

        It commits at the end of the block and rolls back if the block raises.
        """
        raise NotImplementedError

    @case
    async def test_jobs_in_a_callers_transaction_exist_once_it_commits(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [await driver.new(key=f"{number}") for number in range(3)]

        async with self.transaction(driver.store) as connection:
            submitted = await driver.store.submit(jobs, connection=connection)
            assert [each.is_new for each in submitted] == [True] * 3

        assert [await other.state(job.id) for job in jobs] == [JobState.QUEUED] * 3
        assert sorted(ids((await other.dispatch()).jobs)) == sorted(ids(jobs))

    @case
    async def test_a_run_in_a_callers_transaction_starts_once_it_commits(self) -> None:
        driver = RunDriver(self.store())
        new = await driver.new_run({"s": {"task": "t"}})
        rolled_back = await driver.new_run({"s": {"task": "t"}})

        async with self.transaction(driver.store) as connection:
            (started,) = await driver.runs.start([new], connection=connection)
            assert started.is_new
        with raises(_RollBack):
            async with self.transaction(driver.store) as connection:
                await driver.runs.start([rolled_back], connection=connection)
                raise _RollBack
        await driver.settle()

        assert await driver.states(new.id) == {"s": "running"}
        assert await driver.runs.get(rolled_back.id) is None

    @case
    async def test_a_run_enters_the_line_of_its_workflow_once_its_transaction_commits(self) -> None:
        driver = RunDriver(self.store())
        content = content_of({"s": {"task": "t"}}, max_active_runs=1)
        rolled_back, committed, later = [await driver.new_run(content=content) for _ in range(3)]

        with raises(_RollBack):
            async with self.transaction(driver.store) as connection:
                await driver.runs.start([rolled_back], connection=connection)
                raise _RollBack
        async with self.transaction(driver.store) as connection:
            await driver.runs.start([committed], connection=connection)
        await driver.runs.start([later])

        assert await driver.runs.place(later.id) == RunPlace(active=0, most=1, ahead=1)
        await driver.advance(later.id)
        await driver.settle()
        assert await driver.states(committed.id) == {"s": "running"}
        assert await driver.runs.place(later.id) == RunPlace(active=1, most=1, ahead=0)

    @case
    async def test_jobs_in_a_rolled_back_transaction_never_exist(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.new(key="k", fingerprint=b"1")

        with raises(_RollBack):
            async with self.transaction(driver.store) as connection:
                await driver.store.submit([job], connection=connection)
                raise _RollBack

        assert await other.store.get(job.id) is None
        assert await other.store.find_key("", "k") is None
        assert await other.lanes() == []
        assert (await other.try_submit(key="k", fingerprint=b"2")).is_new

    @case
    async def test_a_rolled_back_transaction_leaves_a_unique_key_unchanged(self) -> None:
        driver, other = self.driver(), self.driver()
        key = unique(replaces=True)
        first = await driver.submit(unique=key)
        job, free = await driver.new(unique=key), await driver.new(unique=unique(name="free"))

        with raises(_RollBack):
            async with self.transaction(driver.store) as connection:
                answers = await driver.store.submit([job, free], connection=connection)
                assert [each.is_new for each in answers] == [True, True]
                raise _RollBack

        assert await other.read(first) == first
        assert await other.try_submit(unique=unique()) == duplicate_of(first)
        assert (await other.try_submit(unique=unique(name="free"))).is_new

    @case
    async def test_a_transaction_sees_the_keys_of_its_own_jobs(self) -> None:
        driver = self.driver()
        first, second = await driver.new(key="k"), await driver.new(key="k")

        async with self.transaction(driver.store) as connection:
            await driver.store.submit([first], connection=connection)
            (again,) = await driver.store.submit([second], connection=connection)

        assert (again.id, again.is_new, again.is_same) == (first.id, False, True)

    @case
    async def test_a_transaction_finds_its_own_jobs_before_it_commits(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.new(tenant="acme", key="k")

        async with self.transaction(driver.store) as connection:
            await driver.store.submit([job], connection=connection)
            found = await driver.store.get(job.id, connection=connection)
            assert await driver.store.find_key("acme", "k", connection=connection) == job.id
            assert await driver.store.find_key("", "k", connection=connection) is None
            assert await other.store.get(job.id) is None
            assert await other.store.find_key("acme", "k") is None

        assert found == await other.store.get(job.id)
