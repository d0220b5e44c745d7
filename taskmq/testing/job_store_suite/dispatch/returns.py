"""Tests of returned messages: their jobs are dispatched again under the same token."""

from typing import Any

from taskmq.contracts.jobs import DispatchBatch, DispatchedJob, JobDetail, Pick, ReturnedJob
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver, forged_token, ids
from taskmq.testing.runner import case


class Returns(JobStoreCase):
    """Every guarantee of `dispatch_again`."""

    @case
    async def test_a_returned_job_keeps_its_token_and_its_first_end_counts(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new(detail=JobDetail(owner="ann"))

        (again,) = await _again(driver, job)

        assert (again.token, again.attempt, again.owner, again.body) == (job.token, job.attempt, "ann", job.body)
        assert (job.crashes, again.crashes) == (None, 0)
        assert await driver.state(job) is JobState.DISPATCHED
        assert await _notes(driver, job) == []
        record = await driver.expect_accepted(job, "succeeded", worker="w1", started=1_000)
        assert record.state is JobState.SUCCEEDED
        assert (await driver.report(again, "succeeded", worker="w2", started=2_000)).outcome == "superseded"

    @case
    async def test_a_lost_run_is_recorded_and_its_job_waits_for_another_worker(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        await driver.expect_accepted(job, "started", worker="w1", started=1_000)

        (again,) = await _again(driver, job, crashes=1, reason="its worker died ☂")

        record = await driver.read(job)
        assert (record.state, record.started, record.first_started, record.attempt) == (
            JobState.DISPATCHED,
            None,
            1_000,
            1,
        )
        assert (again.token, again.crashes, again.due) == (job.token, 1, None)
        assert await _notes(driver, job) == [("interrupted", "w1", "its worker died ☂", 1_000)]
        await driver.expect_accepted(again, "started", worker="w2", started=2_000)
        # The loss of the first run is already recorded.
        assert len(await _notes(driver, job)) == 1
        assert await driver.store.attempts(job.id) == []

    @case
    async def test_crashes_accumulate_in_one_dispatch_and_reset_in_the_next(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        found: list[int | None] = []
        for crashes in (0, 1, 2):
            (again,) = await _again(driver, job, crashes=crashes, reason="gone")
            found.append(again.crashes)
        assert found == [0, 1, 3]
        assert [kind for kind, *_ in await _notes(driver, job)] == ["interrupted"] * 2

        await driver.expect_accepted(job, "interrupted")
        redispatched = await driver.again(job)

        assert redispatched.crashes is None
        assert redispatched.token != job.token
        (again,) = await _again(driver, redispatched)
        assert again.crashes == 0

    @case
    async def test_returning_an_ended_waiting_or_redispatched_job_changes_nothing(self) -> None:
        driver = self.driver()
        await driver.submit_many(5)
        ended, waits, redispatched, asked, other = (await driver.dispatch()).jobs
        await driver.expect_accepted(ended, "succeeded")
        await driver.expect_accepted(waits, "retry", delay=HOUR)
        await driver.expect_accepted(redispatched, "interrupted")
        await driver.dispatch()
        await driver.request_cancel(await driver.read(asked))
        jobs = [ended, waits, redispatched, asked]
        before = [await driver.read(job) for job in jobs]

        partition = driver.schedulers.partition_of(QUEUE)
        returned = [ReturnedJob(id=job.id, token=job.token, crashes=1) for job in jobs]
        returned += [ReturnedJob(id=other.id, token=forged_token(other.token)), ReturnedJob(id="no id", token=1)]
        batch = await driver.schedulers.dispatch_again(partition, await driver.epoch(partition), returned)

        assert batch is None
        assert await driver.schedulers.dispatch_again(partition, await driver.epoch(partition), []) is None
        assert [await driver.read(job) for job in jobs] == before
        # Any report about a job that was asked to end ends it.
        record = await driver.expect_accepted(asked, "interrupted", redelivered=True)
        assert record.state is JobState.CANCELLED

    @case
    async def test_a_scheduler_without_the_partition_redispatches_nothing(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        stale = await driver.epoch(partition := driver.schedulers.partition_of(QUEUE))
        await other.next_epoch(partition)
        before = await driver.read(job)

        batch = await driver.schedulers.dispatch_again(partition, stale, [ReturnedJob(id=job.id, token=job.token)])

        assert batch is None
        assert await driver.read(job) == before

    @case
    async def test_the_next_holder_gets_a_returned_job_once_with_its_crashes(self) -> None:
        driver, other = self.driver(), self.driver()
        await driver.submit_many(2)
        first = await driver.dispatch()
        await driver.schedulers.confirm([first.id])
        came_back, stays = first.jobs
        second = await _dispatch_again(driver, came_back, crashes=1)
        partition = driver.schedulers.partition_of(QUEUE)

        records = await other.schedulers.in_flight(partition, dispatched_before=2**62)
        left = await other.schedulers.take_over(partition, await other.next_epoch(partition))

        assert sorted(ids(records)) == sorted(ids(first.jobs))
        assert {batch.id: (batch.confirmed, ids(batch.jobs)) for batch in left} == {
            first.id: (True, [stays.id]),
            second.id: (False, [came_back.id]),
        }
        assert [job.crashes for batch in left for job in batch.jobs if job.id == came_back.id] == [1]

    @case
    async def test_a_returned_job_counts_once_for_its_tenant(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new(tenant="acme")
        await _again(driver, job)
        waiting = await driver.submit(tenant="acme")
        quota = Quota(tenant="acme", running=2)
        await driver.store.limit(Quotas(version=1, quotas={usage_name("acme", None): quota}))
        partition = driver.schedulers.partition_of(QUEUE)

        batch = await driver.schedulers.dispatch_within(
            partition,
            await driver.epoch(partition),
            [Pick(lane, 10) for lane in await driver.lanes()],
            await driver.store.quotas(),
        )

        assert batch is not None
        assert ids(batch.jobs) == [waiting.id]


async def _dispatch_again(driver: JobDriver, *jobs: DispatchedJob, **fields: Any) -> DispatchBatch:
    partition = driver.schedulers.partition_of(jobs[0].queue)
    returned = [ReturnedJob(id=job.id, token=job.token, **fields) for job in jobs]
    batch = await driver.schedulers.dispatch_again(partition, await driver.epoch(partition), returned)
    assert batch is not None
    assert not batch.confirmed
    return batch


async def _again(driver: JobDriver, *jobs: DispatchedJob, **fields: Any) -> list[DispatchedJob]:
    return (await _dispatch_again(driver, *jobs, **fields)).jobs


async def _notes(driver: JobDriver, job: DispatchedJob) -> list[tuple[str, str, str, int | None]]:
    return [(event.kind, event.by, event.note, event.started) for event in await driver.store.events(job.id)]
