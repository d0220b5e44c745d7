"""Tests of a store's clock, address, maintenance and closing."""

import asyncio
import inspect

from taskmq.contracts.finding import Finding
from taskmq.contracts.jobs import partition_key
from taskmq.errors import StateUnavailable, StoreUnavailable
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, LONG, QUEUE, report
from taskmq.testing.runner import case


class StoreClosure(JobStoreCase):
    """Guarantees of a store as a whole."""

    @case
    async def test_stores_on_one_database_share_a_clock_that_never_goes_back(self) -> None:
        stores = [self.store() for _ in range(3)]

        readings = [await stores[turn % 3].now_ms() for turn in range(30)]

        assert readings == sorted(readings)
        assert all(isinstance(reading, int) for reading in readings)

    @case
    async def test_a_new_database_has_the_right_schema_and_no_problems(self) -> None:
        store = self.store()

        await store.check()
        findings = await store.diagnose()

        assert all(isinstance(finding, Finding) for finding in findings)
        assert [finding for finding in findings if finding.level == "problem"] == []

    @case
    async def test_a_store_reports_the_bytes_of_its_database(self) -> None:
        store = self.store()

        assert await store.size() > 0

    @case
    async def test_concurrent_maintenance_removes_no_job(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [await driver.make(state) for state in JobState if state is not JobState.UNKNOWN]

        await asyncio.gather(*(each.schedulers.maintain() for each in (driver, other) * 3))

        assert [await driver.read(job) for job in jobs] == jobs

    @case
    async def test_a_store_can_be_closed_unused_twice_and_concurrently(self) -> None:
        unused, used = self.store(), self.store()
        await used.now_ms()
        assert "://" in used.address

        for store in (unused, used):
            await asyncio.gather(store.aclose(), store.aclose())
            await store.aclose()

    @case
    async def test_jobs_survive_their_store_closing(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.submit(due=HOUR)

        await driver.store.aclose()

        assert await other.read(job) == job

    @case
    async def test_a_closed_store_raises(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        record, new = await driver.read(job), await driver.new()
        store, schedulers = driver.store, driver.schedulers
        epoch = await driver.epoch(partition := schedulers.partition_of(QUEUE))
        await store.aclose()

        for call in (
            store.submit([new]),
            store.get(job.id),
            store.find_key("", "k"),
            store.list_jobs(),
            store.count_jobs(),
            driver.update(record, JobState.CANCELLED),
            store.events(job.id),
            store.attempts(job.id),
            store.now_ms(),
            store.check(),
            schedulers.lanes(partition),
            driver.try_dispatch(epoch=epoch),
            schedulers.confirm([1]),
            schedulers.forget([1]),
            driver.undispatch(job),
            driver.fail(job, reason="no"),
            schedulers.take_over(partition, epoch),
            schedulers.apply([report(job, "succeeded")]),
            schedulers.due(partition, until=1, limit=1),
            schedulers.in_flight(partition, dispatched_before=1),
            schedulers.maintain(),
            schedulers.leases.acquire(partition_key(partition), owner="a", seconds=LONG),
            schedulers.leases.find(partition_key(partition)),
        ):
            assert inspect.iscoroutine(call)
            try:
                async with asyncio.timeout(self.patience):
                    await call
            except (StoreUnavailable, StateUnavailable):
                continue
            raise AssertionError(f"{call!r} of a closed store did not raise StoreUnavailable")

        assert await other.read(job) == record
