"""Tests of jobs that are dispatched by the transaction that creates them for a run."""

from typing import Any, Final

from taskmq.contracts.jobs import DispatchBatch, Lane
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import QUEUE, ids
from taskmq.testing.job_store_suite.runs.kit import RunDriver
from taskmq.testing.runner import case

_LANE: Final = Lane(QUEUE, 4, "")


class RunDispatches(JobStoreCase):
    """Dispatches at once, under the hold of a partition; a store need not do so."""

    @case
    async def test_the_only_new_job_of_a_run_may_be_dispatched_at_once(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t", "owner": "ann"}})

        advanced = (await driver.advance(run, hold=await driver.hold()))[run]

        assert (advanced.batch is None) == (advanced.lanes == frozenset([_LANE]))
        (job,) = driver.dispatched or (await driver.dispatch()).jobs
        record = await driver.read(job)
        assert (record.state, record.token, record.due) == (JobState.DISPATCHED, job.token, job.due)
        assert record.dispatched is not None
        assert (job.task, job.queue, job.attempt, job.owner) == ("t", QUEUE, 1, "ann")
        assert job.body == record.body
        assert await driver.try_dispatch() is None
        await driver.finish(run, "s")
        assert (await driver.states(run)) == {"s": "succeeded"}

    @case
    async def test_the_next_holder_takes_over_a_job_that_was_dispatched_at_once(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        hold = await driver.hold()
        await driver.advance(run, hold=hold)
        (job,) = driver.dispatched or (await driver.dispatch()).jobs

        epoch = await driver.next_epoch(hold.partition)

        (left,) = await driver.schedulers.take_over(hold.partition, epoch)
        assert left == DispatchBatch(left.id, False, [job])

    @case
    async def test_a_job_waits_for_its_dispatch_if_the_hold_is_lost(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}})
        hold = await driver.hold()
        await driver.next_epoch(hold.partition)

        await self._expect_no_dispatch(driver, run, hold=hold)

        await driver.finish(run, "s")

    @case
    async def test_a_job_is_not_dispatched_before_others_of_its_queue(self) -> None:
        driver = RunDriver(self.store())
        first = await driver.submit(tenant="other", priority=0)
        run = await driver.start({"s": {"task": "t"}})

        await self._expect_no_dispatch(driver, run, hold=await driver.hold())

        dispatched = ids((await driver.dispatch()).jobs)
        assert sorted(dispatched) == sorted([first.id, (await driver.step(run, "s")).job])

    @case
    async def test_two_new_jobs_of_a_run_wait_for_their_dispatch(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t"}, "u": {"task": "t"}})

        await self._expect_no_dispatch(driver, run, hold=await driver.hold())

        assert len((await driver.dispatch()).jobs) == 2

    @case
    async def test_a_job_that_may_not_start_is_not_dispatched(self) -> None:
        driver = RunDriver(self.store())
        run = await driver.start({"s": {"task": "t", "held": True}})
        expired = await driver.start({"s": {"task": "t", "expires": 1}})
        for each in (run, expired):
            await driver.advance(each, hold=await driver.hold())
        assert driver.dispatched == []
        assert await driver.state((await driver.step(run, "s")).job) is JobState.HELD

        assert await driver.try_dispatch() is None
        await driver.settle()

        assert (await driver.step(expired, "s")).error == "the job expired before it started"

    async def _expect_no_dispatch(self, driver: RunDriver, run: str, **fields: Any) -> None:
        """Advance a run; its new jobs have to be ready."""
        advanced = (await driver.advance(run, **fields))[run]
        assert advanced.batch is None
        assert advanced.lanes == frozenset([_LANE])
