"""Tests of dispatched jobs before a worker has them: confirmed, forgotten, withdrawn, failed, taken over."""

import asyncio
from typing import Any

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, JobDetail, Withdrawn, partition_key
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver, forged_token, ids
from taskmq.testing.runner import case


class Batches(JobStoreCase):
    """Every guarantee of `confirm`, `forget`, `undispatch`, `fail` and `take_over`."""

    @case
    async def test_the_next_holder_gets_the_batches_of_earlier_ones(self) -> None:
        driver, other = self.driver(), self.driver()
        first, second = await _batch(driver, 3), await _batch(driver, 2, detail=JobDetail(owner="ann"))
        assert [job.owner for job in first.jobs + second.jobs] == ["", "", "", "ann", "ann"]
        await driver.schedulers.confirm([second.id])

        left = await _take_over(other)

        assert sorted(left, key=_by_id) == sorted([first, _as_confirmed(second)], key=_by_id)

    @case
    async def test_a_holder_does_not_take_over_its_own_batches(self) -> None:
        driver, other = self.driver(), self.driver()
        left = await _batch(driver, 1)
        epoch = await other.next_epoch(partition := other.schedulers.partition_of(QUEUE))
        await _batch(other, 1)

        assert await other.schedulers.take_over(partition, epoch) == [left]

    @case
    async def test_the_following_holder_takes_over_the_same_batch(self) -> None:
        drivers = [self.driver() for _ in range(3)]
        batch = await _batch(drivers[0], 2)

        assert await _take_over(drivers[1]) == [batch]
        await drivers[1].schedulers.confirm([batch.id])
        assert await _take_over(drivers[2]) == [_as_confirmed(batch)]

    @case
    async def test_only_jobs_in_flight_with_an_unchanged_token_are_taken_over(self) -> None:
        driver, other = self.driver(), self.driver()
        batch = await _batch(driver, 6)
        waits, running, ended, back, again, retries = batch.jobs
        await driver.expect_accepted(running, "started")
        await driver.expect_accepted(ended, "succeeded")
        await driver.undispatch(back, again)
        await driver.expect_update(await driver.read(back), JobState.HELD, kind="hold")
        redispatched = (await driver.dispatch()).jobs
        await driver.expect_accepted(retries, "retry", delay=HOUR)
        assert ids(redispatched) == [again.id]

        left = {found.id: found for found in await _take_over(other)}

        assert sorted(ids(left.pop(batch.id).jobs)) == sorted([waits.id, running.id])
        assert [found.jobs for found in left.values()] == [redispatched]

    @case
    async def test_a_batch_with_no_jobs_left_is_not_taken_over(self) -> None:
        driver, other = self.driver(), self.driver()
        for job in (await _batch(driver, 3)).jobs:
            await driver.expect_accepted(job, "succeeded")

        assert await _take_over(other) == []

    @case
    async def test_a_forgotten_batch_is_not_taken_over(self) -> None:
        driver, other = self.driver(), self.driver()
        forgotten, kept = await _batch(driver, 1), await _batch(driver, 1)

        await driver.schedulers.forget([forgotten.id])
        await driver.schedulers.forget([forgotten.id, 2**40])

        assert await _take_over(other) == [kept]
        assert await driver.state(forgotten.jobs[0]) is JobState.DISPATCHED

    @case
    async def test_unknown_batches_can_be_confirmed_and_forgotten(self) -> None:
        schedulers = self.driver().schedulers

        await schedulers.confirm([])
        await schedulers.confirm([1, 2**40])
        await schedulers.forget([])
        await schedulers.forget([1, 2**40])

    @case
    async def test_a_scheduler_without_the_partition_takes_over_nothing(self) -> None:
        driver, other = self.driver(), self.driver()
        batch = await _batch(driver, 1)
        partition = driver.schedulers.partition_of(QUEUE)
        stale = await driver.next_epoch(partition)
        present = await other.next_epoch(partition)

        for epoch in (stale, 0, present + 1):
            assert await driver.schedulers.take_over(partition, epoch) == []

        assert await other.schedulers.take_over(partition, present) == [batch]

    @case
    async def test_a_take_over_returns_batches_once_per_epoch(self) -> None:
        driver, other = self.driver(), self.driver()
        batch = await _batch(driver, 2)
        partition = driver.schedulers.partition_of(QUEUE)
        epoch = await other.next_epoch(partition)
        assert len(await other.schedulers.take_over(partition, epoch)) == 1

        assert await other.schedulers.take_over(partition, epoch) == []

        assert await _take_over(driver) == [batch]

    @case
    async def test_an_expired_lease_is_valid_until_another_scheduler_takes_it(self) -> None:
        driver, other = self.driver(), self.driver()
        partition, key = driver.schedulers.partition_of(QUEUE), partition_key(driver.schedulers.partition_of(QUEUE))
        batch = await _batch(driver, 1)
        await driver.schedulers.leases.release(key, token=await driver.epoch(partition))
        epoch = await driver.schedulers.leases.acquire(key, owner="late", seconds=0.0)
        assert isinstance(epoch, int)
        assert await driver.schedulers.leases.find(key) is None
        await driver.submit()

        assert await driver.schedulers.take_over(partition, epoch) == [batch]
        redispatched = await driver.try_dispatch(epoch=epoch)
        assert redispatched is not None
        back = await driver.undispatch(*redispatched.jobs, epoch=epoch)
        assert back.ids == set(ids(redispatched.jobs))
        await other.next_epoch(partition)
        assert await driver.try_dispatch(epoch=epoch) is None
        assert await driver.schedulers.take_over(partition, epoch) == []

    @case
    async def test_batches_of_another_partition_are_not_taken_over(self) -> None:
        driver = self.driver()
        batch = await _batch(driver, 1)
        partition = driver.schedulers.partition_of(QUEUE)

        for another in set(range(driver.schedulers.partitions)) - {partition}:
            assert await driver.schedulers.take_over(another, await driver.next_epoch(another)) == []
        assert await driver.schedulers.take_over(partition, await driver.next_epoch(partition)) == [batch]

    @case
    async def test_a_job_rejected_by_the_broker_is_ready_again(self) -> None:
        driver, other = self.driver(), self.driver()
        batch = await _batch(driver, 3)
        epoch = await driver.epoch(driver.schedulers.partition_of(QUEUE))

        withdrawn = await other.undispatch(*batch.jobs[:2], epoch=epoch, reason="no queue ☂")

        assert withdrawn == Withdrawn(frozenset(ids(batch.jobs[:2])))
        assert [await driver.state(job) for job in batch.jobs] == [
            JobState.QUEUED,
            JobState.QUEUED,
            JobState.DISPATCHED,
        ]
        again = await driver.dispatch()
        assert sorted(ids(again.jobs)) == sorted(ids(batch.jobs[:2]))
        assert [job.attempt for job in again.jobs] == [1, 1]
        assert not {job.token for job in again.jobs} & {job.token for job in batch.jobs}

    @case
    async def test_a_job_rejected_by_the_broker_can_be_delayed(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        before = await driver.store.now_ms()

        await driver.undispatch(job, delay=3_600, reason="full")

        record = await driver.read(job)
        assert (record.state, record.attempt, record.version) == (JobState.SCHEDULED, 1, 3)
        assert before + HOUR <= record.due <= await driver.store.now_ms() + HOUR
        assert await driver.lanes() == []
        assert [timer.due for timer in await driver.timers()] == [record.due]

    @case
    async def test_a_rejection_by_the_broker_is_recorded(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()

        await driver.undispatch(job, reason="no queue ☂")

        events = await driver.store.events(job.id)
        assert [(event.kind, event.state, event.note) for event in events] == [
            ("undispatched", JobState.QUEUED, "no queue ☂")
        ]

    @case
    async def test_withdrawing_a_job_asked_to_cancel_ends_it(self) -> None:
        driver = self.driver()
        for delay in (0.0, 3_600.0):
            job = await driver.dispatch_new()
            await driver.request_cancel(await driver.read(job))

            assert await driver.undispatch(job, delay=delay) == Withdrawn(frozenset([job.id]))

            record = await driver.read(job)
            assert record.state is JobState.CANCELLED
            assert record.finished is not None
        assert await driver.lanes() == []

    @case
    async def test_a_job_that_can_never_run_fails_with_the_reason(self) -> None:
        driver, other = self.driver(), self.driver()
        batch = await _batch(driver, 2)

        epoch = await driver.epoch(driver.schedulers.partition_of(QUEUE))
        withdrawn = await other.fail(batch.jobs[0], epoch=epoch, reason="larger than the broker takes ☂")

        assert withdrawn == Withdrawn(frozenset([batch.jobs[0].id]))

        record = await driver.read(batch.jobs[0])
        assert (record.state, record.attempt) == (JobState.FAILED, 1)
        assert record.finished is not None
        assert record.error is not None
        assert record.error.message == "larger than the broker takes ☂"
        assert await driver.state(batch.jobs[1]) is JobState.DISPATCHED

    @case
    async def test_jobs_with_an_outdated_token_are_neither_withdrawn_nor_failed(self) -> None:
        driver = self.driver()
        old = await driver.dispatch_new()
        await driver.expect_accepted(old, "interrupted")
        new = await driver.again(old)
        ended = await driver.dispatch_new()
        await driver.expect_accepted(ended, "succeeded")
        waits = await driver.dispatch_new()
        await driver.expect_accepted(waits, "retry", delay=HOUR)
        guessed = replace(new, token=forged_token(new.token))
        records = [await driver.read(job) for job in (new, ended, waits)]

        partition = driver.schedulers.partition_of(QUEUE)
        epoch = await driver.epoch(partition)
        for jobs in ([], [old], [ended, waits, guessed]):
            assert await driver.schedulers.undispatch(partition, epoch, jobs) == Withdrawn()
            assert await driver.schedulers.fail(partition, epoch, jobs, reason="no") == Withdrawn()

        assert [await driver.read(job) for job in (new, ended, waits)] == records
        for job in (new, ended, waits):
            assert await driver.store.events(job.id) == []

    @case
    async def test_a_job_is_withdrawn_only_once(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        await driver.undispatch(job)
        record = await driver.read(job)

        await driver.undispatch(job, delay=3_600)
        await driver.fail(job, reason="no")

        assert await driver.read(job) == record

    @case
    async def test_a_running_job_is_neither_withdrawn_nor_failed(self) -> None:
        driver = self.driver()
        batch = await _batch(driver, 4)
        runs, is_detached, unwanted, waits = batch.jobs
        await driver.expect_accepted(runs, "started")
        await driver.expect_accepted(is_detached, "detached")
        await driver.expect_accepted(unwanted, "started")
        await driver.request_cancel(await driver.read(unwanted))
        running = [runs, is_detached, unwanted]
        records = [await driver.read(job) for job in running]

        failed = await driver.fail(*running, reason="its confirm is lost")
        back = await driver.undispatch(*batch.jobs, reason="no queue")

        assert failed == Withdrawn(frozenset(), frozenset(ids(running)))
        assert back == Withdrawn(frozenset([waits.id]), frozenset(ids(running)))
        assert [await driver.read(job) for job in running] == records
        assert [job.id for job in (await driver.dispatch()).jobs] == [waits.id]
        # Reports with the right tokens count.
        await driver.expect_accepted(runs, "succeeded")

    @case
    async def test_a_job_of_a_lost_worker_fails_if_it_must_not_run_again(self) -> None:
        driver = self.driver()
        batch = await _batch(driver, 3)
        runs, waits, ended = batch.jobs
        await driver.expect_accepted(runs, "started")
        await driver.expect_accepted(ended, "succeeded")

        failed = await driver.fail(*batch.jobs, reason="its worker is gone", also_running=True)

        assert failed == Withdrawn(frozenset(ids([runs, waits])))
        for job in (runs, waits):
            assert await driver.state(job) is JobState.FAILED
            assert [event.kind for event in await driver.store.events(job.id)] == ["ended"]
        assert await driver.state(ended) is JobState.SUCCEEDED

    @case
    async def test_a_former_holder_withdraws_and_fails_nothing(self) -> None:
        driver, other = self.driver(), self.driver()
        batch = await _batch(driver, 3)
        partition = driver.schedulers.partition_of(QUEUE)
        stale = await driver.epoch(partition)
        await driver.request_cancel(await driver.read(batch.jobs[0]))
        await driver.expect_accepted(batch.jobs[1], "started")
        assert len(await _take_over(other)) == 1
        records = [await driver.read(job) for job in batch.jobs]

        for epoch in (stale, 0, await other.epoch(partition) + 1):
            assert await driver.undispatch(*batch.jobs, epoch=epoch) == Withdrawn(is_fenced=True)
            assert await driver.fail(*batch.jobs, epoch=epoch, reason="no") == Withdrawn(is_fenced=True)
            assert await driver.undispatch(epoch=epoch) == Withdrawn(is_fenced=True)
            assert await driver.fail(epoch=epoch, reason="no") == Withdrawn(is_fenced=True)

        assert [await driver.read(job) for job in batch.jobs] == records
        back = await other.undispatch(*batch.jobs)
        assert back.running == {batch.jobs[1].id}

    @case
    async def test_a_concurrent_start_cancel_and_withdrawal_leave_no_untracked_run(self) -> None:
        driver, other = self.driver(), self.driver()
        batch = await _batch(driver, 20)
        epoch = await driver.epoch(driver.schedulers.partition_of(QUEUE))
        records = [await driver.read(job) for job in batch.jobs]

        starts = asyncio.gather(*(other.report(job, "started") for job in batch.jobs))
        cancels = asyncio.gather(
            *(other.update(one, cancel_requested="no", kind="cancel_requested") for one in records[::2])
        )
        answers, back, _ = await asyncio.gather(starts, driver.undispatch(*batch.jobs, epoch=epoch), cancels)

        started = {job.id for job, one in zip(batch.jobs, answers, strict=True) if one.outcome == "accepted"}
        states = {job.id: await driver.state(job) for job in batch.jobs}
        assert back.ids | back.running == set(states)
        assert back.running == started
        for job_id in back.ids:
            assert states[job_id] in (JobState.QUEUED, JobState.CANCELLED), job_id
        assert {job_id for job_id, state in states.items() if state is JobState.RUNNING} == started


async def _batch(driver: JobDriver, count: int, **fields: Any) -> DispatchBatch:
    await driver.submit_many(count, **fields)
    batch = await driver.dispatch()
    assert len(batch.jobs) == count
    return batch


async def _take_over(driver: JobDriver) -> list[DispatchBatch]:
    """Take over the partition; return its batches, with jobs sorted by id."""
    partition = driver.schedulers.partition_of(QUEUE)
    found = await driver.schedulers.take_over(partition, await driver.next_epoch(partition))
    return [DispatchBatch(batch.id, batch.confirmed, sorted(batch.jobs, key=_job_id)) for batch in found]


def _as_confirmed(batch: DispatchBatch) -> DispatchBatch:
    return DispatchBatch(batch.id, True, batch.jobs)


def _by_id(batch: DispatchBatch) -> int:
    return batch.id


def _job_id(job: DispatchedJob) -> str:
    return job.id
