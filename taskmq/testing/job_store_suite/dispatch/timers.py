"""Tests of scheduled jobs and of how they become due."""

import asyncio

from taskmq.contracts.jobs import DueJob, JobRecord, Lane
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.states import JobState
from taskmq.testing.job_store.values import lane_of, shard_of
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, ids
from taskmq.testing.runner import case


class Timers(JobStoreCase):
    """Every guarantee of `due` and `fire`."""

    @case
    async def test_timers_are_found_in_order_of_time_with_their_shards(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [await driver.submit(due=hours * HOUR) for hours in (3, 1, 2, 5, 4, 9)]
        jobs.append(await driver.make(JobState.RETRYING))
        await driver.submit()
        await driver.submit(held=True, due=HOUR)
        partitions = other.schedulers.partitions
        until = max(job.due for job in jobs) + 1

        for partition in range(partitions):
            found = await other.schedulers.due(partition, until=until, limit=100)
            assert found == sorted(_timer(job) for job in jobs if shard_of(job.id) % partitions == partition)

    @case
    async def test_a_timer_due_at_the_end_of_the_look_ahead_is_not_found(self) -> None:
        driver = self.driver()
        job = await driver.submit(due=HOUR)
        partition = _partition(driver, job)

        assert await driver.schedulers.due(partition, until=job.due, limit=10) == []
        assert await driver.schedulers.due(partition, until=job.due + 1, limit=10) == [_timer(job)]

    @case
    async def test_the_earliest_timers_are_read_up_to_the_limit(self) -> None:
        driver = self.driver()
        jobs = [await driver.submit(due=HOUR + number) for number in range(40, 0, -1)]
        partition = _partition(driver, jobs[0])
        of_partition = sorted(_timer(job) for job in jobs if _partition(driver, job) == partition)

        for limit in (1, 2, 3, 100):
            assert (
                await driver.schedulers.due(partition, until=jobs[0].due + HOUR, limit=limit) == of_partition[:limit]
            )

    @case
    async def test_due_jobs_are_queued(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [await _due(driver, queue=queue) for queue in ("a", "b", "b")]
        jobs.append(await _retrying(driver, queue="c"))

        lanes = [await _fire(other, job) for job in jobs]

        assert lanes == [{lane_of(job)} for job in jobs]
        for job in jobs:
            record = await driver.read(job)
            assert (record.state, record.version, record.due) == (JobState.QUEUED, job.version + 1, job.due)
            assert record.attempt == job.attempt
        assert await driver.timers() == []
        assert sorted(ids((await other.dispatch(queue="b")).jobs)) == sorted(ids(jobs[1:3]))

    @case
    async def test_many_timers_are_fired_in_one_call(self) -> None:
        driver = self.driver()
        jobs = [await _due(driver, queue=f"q{number % 3}") for number in range(100)]
        partition = _partition(driver, jobs[0])
        due = await driver.schedulers.due(partition, until=await driver.store.now_ms() + 1, limit=1_000)

        lanes = await driver.schedulers.fire(partition, await driver.epoch(partition), due)

        fired = [job for job in jobs if _partition(driver, job) == partition]
        assert sorted(one.id for one in due) == sorted(ids(fired))
        assert lanes == {lane_of(job) for job in fired}
        for job in jobs:
            expected = JobState.QUEUED if job in fired else JobState.SCHEDULED
            assert await driver.state(job) is expected

    @case
    async def test_a_job_is_fired_once(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await _due(driver)

        assert await _fire(driver, job)
        assert await _fire(other, job) == set()

        assert (await driver.read(job)).version == job.version + 1
        assert len((await other.dispatch(queue=job.queue)).jobs) == 1

    @case
    async def test_a_job_changed_or_cancelled_since_it_was_read_is_not_fired(self) -> None:
        driver = self.driver()
        jobs = [await _due(driver) for _ in range(4)]
        now = await driver.store.now_ms()
        after = [
            await driver.expect_update(jobs[0], due=now + HOUR),
            await driver.expect_update(jobs[1], JobState.CANCELLED, kind="cancel"),
            await driver.expect_update(jobs[2], JobState.HELD, kind="hold"),
            await driver.expect_update(jobs[3], due=jobs[3].due - 1_000),
        ]

        for job in jobs:
            assert await _fire(driver, job) == set()

        assert [await driver.read(job) for job in jobs] == after
        assert [timer.id for timer in await driver.timers()] == [jobs[3].id, jobs[0].id]

    @case
    async def test_a_change_that_keeps_the_time_does_not_prevent_firing(self) -> None:
        driver = self.driver()
        job = await _due(driver)
        changed = await driver.expect_update(job, priority=9, queue="another")

        assert await _fire(driver, job) == {lane_of(changed)}

        assert [lane.priority for lane in await driver.lanes("another")] == [9]
        assert (await driver.read(job)).version == changed.version + 1

    @case
    async def test_firing_nothing_succeeds_and_unknown_jobs_are_not_fired(self) -> None:
        driver = self.driver()
        partition = 0
        epoch = await driver.epoch(partition)
        unknown = await driver.new(due=0)

        assert await driver.schedulers.fire(partition, epoch, []) == set()
        stranger = DueJob(1, unknown.id, shard_of(unknown.id))
        assert await driver.schedulers.fire(stranger.shard % driver.schedulers.partitions, epoch, [stranger]) == set()

    @case
    async def test_an_old_epoch_fires_nothing(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await _due(driver)
        partition = _partition(driver, job)
        stale = await driver.epoch(partition)
        present = await other.next_epoch(partition)

        for epoch in (stale, 0, present + 1):
            assert await driver.schedulers.fire(partition, epoch, [_timer(job)]) == set()

        assert await driver.read(job) == job
        assert await driver.schedulers.fire(partition, present, [_timer(job)]) == {lane_of(job)}

    @case
    async def test_partitions_fire_concurrently_each_with_its_own_epoch(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = [await _due(driver, queue=f"due-{number}") for number in range(12)]
        timers: dict[int, list[JobRecord]] = {}
        for job in jobs:
            timers.setdefault(_partition(driver, job), []).append(job)
        epochs = {partition: await driver.epoch(partition) for partition in timers}
        lost = min(timers)
        await other.next_epoch(lost)

        found = await asyncio.gather(
            *(
                driver.schedulers.fire(partition, epochs[partition], [_timer(job) for job in its])
                for partition, its in timers.items()
            )
        )

        held = {partition: its for partition, its in timers.items() if partition != lost}
        assert set[Lane]().union(*found) == {lane_of(job) for its in held.values() for job in its}
        for job in jobs:
            wanted = JobState.SCHEDULED if _partition(driver, job) == lost else JobState.QUEUED
            assert await driver.state(job) is wanted

    @case
    async def test_a_partition_stopped_while_firing_does_not_block_others(self) -> None:
        driver = self.driver()
        jobs = [await _due(driver, queue=f"due-{number}") for number in range(3)]
        calls = [
            asyncio.ensure_future(
                driver.schedulers.fire(
                    _partition(driver, job), await driver.epoch(_partition(driver, job)), [_timer(job)]
                )
            )
            for job in jobs
        ]

        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.gather(*calls, return_exceptions=True)

        assert [await driver.state(job) for job in jobs[1:]] == [JobState.QUEUED] * 2

    @case
    async def test_a_retry_and_a_snooze_without_delay_are_due_immediately(self) -> None:
        driver = self.driver()

        kinds: tuple[ReportKind, ...] = ("retry", "snoozed", "refused")
        for kind in kinds:
            job = await driver.expect_accepted(await driver.dispatch_new(), kind)
            now = await driver.store.now_ms()
            assert job.due <= now, kind
            assert _timer(job) in await driver.schedulers.due(_partition(driver, job), until=now + 1, limit=100)
            assert await _fire(driver, job) == {lane_of(job)}
            assert await driver.state(job) is JobState.QUEUED
            await driver.expect_update(await driver.read(job), JobState.CANCELLED)

    @case
    async def test_a_refusal_its_timer_and_the_next_dispatch_each_add_a_version(self) -> None:
        driver = self.driver()
        refused = await driver.expect_accepted(await driver.dispatch_new(), "refused")
        await _fire(driver, refused)
        again = await driver.again(refused)

        twice = await driver.expect_accepted(again, "refused")

        assert [event.version for event in await driver.store.events(twice.id)] == [refused.version, twice.version]
        assert twice.version == refused.version + 3


def _timer(job: JobRecord) -> DueJob:
    return DueJob(job.due, job.id, shard_of(job.id))


def _partition(driver: JobDriver, job: JobRecord) -> int:
    return shard_of(job.id) % driver.schedulers.partitions


async def _due(driver: JobDriver, queue: str = "due") -> JobRecord:
    """Return a scheduled job that is due."""
    job = await driver.submit(queue=queue, due=HOUR)
    return await driver.expect_update(job, due=await driver.store.now_ms() - 60_000)


async def _retrying(driver: JobDriver, queue: str) -> JobRecord:
    job = await driver.make(JobState.RETRYING, queue=queue)
    return await driver.expect_update(job, due=await driver.store.now_ms() - 60_000)


async def _fire(driver: JobDriver, job: JobRecord) -> set[Lane]:
    partition = _partition(driver, job)
    return await driver.schedulers.fire(partition, await driver.next_epoch(partition), [_timer(job)])
