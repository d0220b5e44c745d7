"""Tests of firing: due schedules create jobs for their occurrences, each once."""

import asyncio

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    SCHEDULE_SHARDS,
    DueSchedule,
    OccurrenceJob,
    ScheduleChange,
    ScheduleFiring,
    partition_key,
    schedule_shard,
)
from taskmq.errors import OccurrenceConflict
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import new_id
from taskmq.testing.job_store_suite.schedules.steps import (
    APP,
    MINUTE,
    beside,
    change_schedule,
    create_schedule,
    due_of,
    fire,
    firing_of,
    read,
)
from taskmq.testing.runner import case, raises


class ScheduleFirings(JobStoreCase):
    """Every guarantee of `due`, `fire`, `alive` and `occurrences`."""

    @case
    async def test_each_partition_finds_its_due_schedules_in_order_of_time(self) -> None:
        driver, other = self.driver(), self.driver()
        rows = [await create_schedule(driver.store.schedules, f"s{n}", next=1_000 - n) for n in range(40)]
        await create_schedule(driver.store.schedules, "never")
        partitions = driver.schedulers.partitions
        places = [DueSchedule(row.next or 0, row.id, schedule_shard(APP, row.name)) for row in rows]
        assert all(0 <= place.shard < SCHEDULE_SHARDS for place in places)

        for partition in range(partitions):
            mine = sorted(place for place in places if place.shard % partitions == partition)
            assert await other.store.schedules.due(partition, until=1_001, limit=100) == mine
            assert await other.store.schedules.due(partition, until=1_001, limit=2) == mine[:2]
            assert await other.store.schedules.due(partition, until=980, limit=100) == [
                place for place in mine if place.due < 980
            ]

    @case
    async def test_firing_advances_a_schedule_and_adds_its_occurrences_and_jobs(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=MINUTE)
        job = await driver.new(key="occurrence-1")
        one = OccurrenceJob(instant=MINUTE, run="", kind="due", job=job)
        firing = ScheduleFiring(before=row, record=b"1", next=2 * MINUTE, occurrences=[one])

        assert await fire(driver, [firing]) == {row.id}

        after = await read(driver.store.schedules, "a")
        assert (after.version, after.record, after.next) == (2, b"1", 2 * MINUTE)
        assert [each.due for each in await due_of(driver.store.schedules, "a")] == [2 * MINUTE]
        assert await driver.state(job.id) is JobState.QUEUED
        assert await driver.store.find_key("", "occurrence-1") == job.id
        (fired,) = await driver.store.schedules.occurrences(row.id, limit=9)
        assert (fired.instant, fired.run, fired.kind, fired.job) == (MINUTE, "", "due", job.id)
        assert fired.at <= await driver.store.now_ms()

    @case
    async def test_a_schedule_changed_since_it_was_read_does_not_fire(self) -> None:
        driver = self.driver()
        schedules = driver.store.schedules
        stale, other = (
            await create_schedule(schedules, "a", next=5),
            await create_schedule(schedules, beside("a", driver), next=5),
        )
        present = await change_schedule(schedules, stale, record=b"paused", next=None)
        jobs = [await driver.new(), await driver.new()]
        firings = [firing_of(stale, jobs[0]), firing_of(other, jobs[1])]

        assert await fire(driver, firings) == {other.id}

        assert await read(schedules, "a") == present
        assert await schedules.occurrences(stale.id, limit=9) == []
        assert await driver.store.get(jobs[0].id) is None
        assert await driver.state(jobs[1].id) is JobState.QUEUED

    @case
    async def test_nothing_fires_without_the_lease_on_the_partition(self) -> None:
        driver, other = self.driver(), self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)
        partition = schedule_shard(APP, "a") % driver.schedulers.partitions
        job = await driver.new()
        stale = await driver.next_epoch(partition)
        present = await other.next_epoch(partition)

        for epoch in (stale, 0, present + 1):
            assert await driver.store.schedules.fire(partition, epoch, [firing_of(row, job)]) is None

        assert await read(driver.store.schedules, "a") == row
        assert await driver.store.get(job.id) is None
        await other.schedulers.leases.release(partition_key(partition), token=present)
        assert await other.store.schedules.fire(partition, present, [firing_of(row, job)]) is None

    @case
    async def test_an_occurrence_fired_repeatedly_gets_one_job(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)
        first, second, backfilled = [await driver.new() for _ in range(3)]
        await fire(driver, [firing_of(row, first)])
        again = firing_of(await read(driver.store.schedules, "a"), second)
        again = replace(
            again,
            occurrences=[*again.occurrences, OccurrenceJob(instant=5, run="b", kind="backfill", job=backfilled)],
        )

        assert await fire(driver, [again]) == {row.id}

        assert await driver.store.get(second.id) is None
        fired = await driver.store.schedules.occurrences(row.id, limit=9)
        assert [(one.instant, one.run, one.job) for one in fired] == [(5, "b", backfilled.id), (5, "", first.id)]

    @case
    async def test_an_occurrence_with_a_taken_key_gets_no_second_job(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)
        earlier = await driver.submit(key="the occurrence")
        job = await driver.new(key="the occurrence")

        assert await fire(driver, [firing_of(row, job)]) == {row.id}

        assert await driver.store.get(job.id) is None
        assert await driver.store.find_key("", "the occurrence") == earlier.id

    @case
    async def test_an_occurrence_with_the_key_of_another_job_fails_the_whole_call(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)
        other = await create_schedule(driver.store.schedules, beside("a", driver), next=5)
        earlier = await driver.submit(key="the occurrence")
        job = await driver.new(key="the occurrence", fingerprint=b"of another")
        firings = [firing_of(row, job), firing_of(other, await driver.new())]

        with raises(OccurrenceConflict) as refused:
            await fire(driver, firings)

        assert refused[0].occurrences == {(row.id, 5, "")}
        assert await read(driver.store.schedules, "a") == row
        assert await read(driver.store.schedules, other.name) == other
        assert await driver.store.schedules.occurrences(row.id, limit=9) == []
        assert await driver.store.find_key("", "the occurrence") == earlier.id
        assert await fire(driver, firings[1:]) == {other.id}

    @case
    async def test_an_occurrence_can_start_something_other_than_a_job(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)

        assert await fire(driver, [firing_of(row, None)]) == {row.id}

        (fired,) = await driver.store.schedules.occurrences(row.id, limit=9)
        assert fired.job is None

    @case
    async def test_only_one_of_two_concurrent_firings_of_a_schedule_counts(self) -> None:
        driver, other = self.driver(), self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)
        partition = schedule_shard(APP, "a") % driver.schedulers.partitions
        epoch = await driver.next_epoch(partition)
        jobs = [await driver.new() for _ in range(6)]

        done = await asyncio.gather(
            *(
                (driver, other)[n % 2].store.schedules.fire(partition, epoch, [firing_of(row, jobs[n])])
                for n in range(6)
            )
        )

        assert sorted(len(each or ()) for each in done) == [0] * 5 + [1]
        assert sum([await driver.store.get(job.id) is not None for job in jobs]) == 1

    @case
    async def test_occurrences_are_listed_newest_first(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)
        many = [OccurrenceJob(instant=n, run="", kind="catchup", job=None) for n in range(1, 8)]
        await fire(driver, [ScheduleFiring(before=row, record=b"", next=None, occurrences=many)])
        schedules = driver.store.schedules

        first = await schedules.occurrences(row.id, limit=3)
        rest = await schedules.occurrences(row.id, before=first[-1].instant, limit=9)

        assert [one.instant for one in first + rest] == [7, 6, 5, 4, 3, 2, 1]
        assert await schedules.occurrences(row.id + 1, limit=9) == []

    @case
    async def test_occurrences_at_one_instant_are_listed_in_run_order(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "a", next=5)
        many = [OccurrenceJob(instant=7, run=run, kind="backfill", job=None) for run in ("b", "", "c", "a")]
        await fire(driver, [ScheduleFiring(before=row, record=b"", next=None, occurrences=many)])

        found = await driver.store.schedules.occurrences(row.id, limit=9)

        assert [one.run for one in found] == ["c", "b", "a", ""]
        assert await driver.store.schedules.occurrences(row.id, limit=2) == found[:2]

    @case
    async def test_unfinished_jobs_are_alive(self) -> None:
        driver = self.driver()
        waiting = await driver.submit()
        held = await driver.submit(held=True)
        done = await driver.make(JobState.SUCCEEDED)
        cancelled = await driver.make(JobState.CANCELLED)
        unknown = new_id(await driver.store.now_ms())

        found = await driver.store.schedules.alive([waiting.id, held.id, done.id, cancelled.id, unknown, "no id"])

        assert found == {waiting.id, held.id}
        assert await driver.store.schedules.alive([]) == set()

    @case
    async def test_many_schedules_fire_together(self) -> None:
        driver = self.driver()
        schedules = driver.store.schedules
        partition, partitions = 0, driver.schedulers.partitions
        names = [name for n in range(1_200) if schedule_shard(APP, name := f"s{n}") % partitions == partition]
        await schedules.write([ScheduleChange(app=APP, name=name, before=None, next=5) for name in names])
        rows = [row for row in await schedules.find(APP, names) if row is not None]
        jobs = [await driver.new(body=b"x" * 2_000 if n % 50 == 0 else b"{}") for n in range(len(rows))]

        taken = await schedules.fire(
            partition,
            await driver.next_epoch(partition),
            [firing_of(row, job) for row, job in zip(rows, jobs, strict=True)],
        )

        assert taken == {row.id for row in rows}
        assert len(await schedules.alive([job.id for job in jobs])) == len(names)
        assert await schedules.due(partition, until=MINUTE, limit=9) == []
