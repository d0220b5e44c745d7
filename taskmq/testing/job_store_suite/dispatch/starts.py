"""Tests of starts under rates: counted once for all partitions, schedulers and take-overs."""

import asyncio
import itertools
from typing import Final

import pytest

from taskmq.contracts.jobs import DispatchedJob, Lane, RatedJob, TakenStarts
from taskmq.model.limits import RateDemand
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import LONG, QUEUE, JobDriver, ids, later, new_id
from taskmq.testing.runner import case

_LEAD: Final = 0.1


class StartCases(JobStoreCase):
    """Every guarantee of `take_starts` and `rate_waits`."""

    @case
    async def test_a_rate_grants_its_burst_and_moves_other_jobs_behind_its_gate(self) -> None:
        driver, rate = self.driver(), _rate(burst=2)
        jobs = await _dispatch(driver, 3)
        before = await driver.read(jobs[2])

        taken = await _take(driver, jobs, rate)

        assert taken.instants == {jobs[0].id: None, jobs[1].id: None}
        assert taken.waiting == {jobs[2].id: rate.key}
        assert taken.waits[rate.key] == pytest.approx(LONG - _LEAD, abs=60)
        after = await driver.read(jobs[2])
        assert (after.state, after.version, after.attempt) == (JobState.QUEUED, before.version + 1, before.attempt)
        assert await driver.store.events(jobs[2].id) == []
        assert await driver.schedulers.gate_of(jobs[2].id) == rate.key
        assert await driver.lanes() == []
        await driver.expect_accepted(jobs[0], "succeeded")

    @case
    async def test_a_job_behind_a_rate_is_dispatched_anew_when_its_gate_opens(self) -> None:
        driver, rate = self.driver(), _rate()
        first, second = await _dispatch(driver, 2)
        await _take(driver, [first, second], rate)
        partition = driver.schedulers.partition_of(QUEUE)

        opened = await driver.schedulers.open_gates(partition, await driver.epoch(partition), {rate.key: 1})

        assert opened == [(rate.key, Lane(QUEUE, 4, ""))]
        (again,) = (await driver.dispatch()).jobs
        assert again.id == second.id
        assert again.token > second.token
        assert (await _take(driver, [again], rate)).waiting == {second.id: rate.key}

    @case
    async def test_a_strict_rate_gives_each_start_an_instant_of_its_own(self) -> None:
        driver, rate = self.driver(), _rate(interval=0.05, strict=True)
        jobs = await _dispatch(driver, 6)
        now = await driver.store.now_ms()

        taken = await _take(driver, jobs, rate)

        granted = [job.id for job in jobs if job.id in taken.instants]
        instants = [taken.instants[job] or 0.0 for job in granted]
        assert granted == ids(jobs)[: len(granted)]
        assert instants[0] >= now + 1000 * _LEAD - 0.01
        assert [later - earlier for earlier, later in itertools.pairwise(instants)] == [
            pytest.approx(50, abs=0.01)
        ] * 4
        assert taken.waiting.keys() == set(ids(jobs)) - set(granted)

    @case
    async def test_schedulers_of_several_partitions_share_a_rate(self) -> None:
        drivers, rate = [self.driver(), self.driver()], _rate(burst=3)
        mine = await _dispatch(drivers[0], 5)
        others = await _dispatch(drivers[1], 5, queue=_find_other_queue(drivers[1]))

        taken = await asyncio.gather(_take(drivers[0], mine, rate), _take(drivers[1], others, rate))

        assert sum(len(each.instants) for each in taken) == 3
        assert sum(len(each.waiting) for each in taken) == 7

    @case
    async def test_a_rate_survives_a_take_over(self) -> None:
        driver, rate = self.driver(), _rate()
        (job,) = await _dispatch(driver, 1)
        await _take(driver, [job], rate)
        await driver.next_epoch(driver.schedulers.partition_of(QUEUE))
        (other,) = await _dispatch(driver, 1)

        assert (await _take(driver, [other], rate)).waiting == {other.id: rate.key}

    @case
    async def test_a_scheduler_without_the_partition_counts_no_start(self) -> None:
        driver, rate = self.driver(), _rate()
        partition = driver.schedulers.partition_of(QUEUE)
        (job,) = await _dispatch(driver, 1)
        epoch = await driver.epoch(partition)
        await driver.next_epoch(partition)

        rated = [RatedJob(job.id, job.token, (rate,))]
        assert await driver.schedulers.take_starts(partition, epoch, rated, lead=_LEAD) is None

        assert (await _take(driver, [job], rate)).instants == {job.id: None}

    @case
    async def test_only_the_present_dispatch_of_a_job_uses_a_start(self) -> None:
        driver, rate = self.driver(), _rate()
        ended, stopped, running, job = await _dispatch(driver, 4)
        await driver.expect_accepted(ended, "succeeded")
        await driver.expect_accepted(running, "started")
        await driver.request_cancel(await driver.read(stopped))
        rated = [RatedJob(each.id, each.token, (rate,)) for each in (ended, stopped, running)]
        rated += [RatedJob(job.id, later(job.token), (rate,)), RatedJob("no id", 1, (rate,))]
        partition = driver.schedulers.partition_of(QUEUE)

        taken = await driver.schedulers.take_starts(partition, await driver.epoch(partition), rated, lead=_LEAD)

        assert taken is not None
        assert (taken.instants, taken.waiting) == ({}, {})
        assert (await _take(driver, [job], rate)).instants == {job.id: None}

    @case
    async def test_a_job_starts_only_if_all_its_rates_have_room(self) -> None:
        driver, full, free = self.driver(), _rate(), _rate()
        first, second, third = await _dispatch(driver, 3)
        await _take(driver, [first], full)

        assert (await _take(driver, [second], free, full)).waiting == {second.id: full.key}

        assert (await _take(driver, [third], free)).instants == {third.id: None}

    @case
    async def test_a_sure_start_is_counted_even_without_room(self) -> None:
        driver, rate = self.driver(), _rate()
        jobs = await _dispatch(driver, 2)
        await _take(driver, jobs[:1], rate)

        taken = await _take(driver, jobs[1:], rate, is_sure=True)

        assert taken.instants == {jobs[1].id: None}
        assert taken.waits[rate.key] == pytest.approx(2 * LONG - _LEAD, abs=60)

    @case
    async def test_rates_are_read_without_a_start(self) -> None:
        driver, used, unused = self.driver(), _rate(), _rate()
        (job,) = await _dispatch(driver, 1)
        await _take(driver, [job], used)

        waits = await driver.schedulers.rate_waits([used, unused], lead=_LEAD)

        assert waits[used.key] == pytest.approx(LONG - _LEAD, abs=60)
        assert waits[unused.key] <= 0
        assert await driver.schedulers.rate_waits([], lead=_LEAD) == {}

    @case
    async def test_maintenance_keeps_rates_in_use(self) -> None:
        driver, rate = self.driver(), _rate()
        first, second = await _dispatch(driver, 2)
        await _take(driver, [first], rate)

        await driver.schedulers.maintain()

        assert (await _take(driver, [second], rate)).waiting == {second.id: rate.key}


async def _dispatch(driver: JobDriver, count: int, *, queue: str = QUEUE) -> list[DispatchedJob]:
    """Submit and dispatch jobs of a queue without other ready jobs."""
    await driver.submit_many(count, queue=queue)
    return (await driver.dispatch(queue=queue)).jobs


def _find_other_queue(driver: JobDriver) -> str:
    """Return a queue of another partition."""
    partition_of = driver.schedulers.partition_of
    return next(queue for number in itertools.count() if partition_of(queue := f"q{number}") != partition_of(QUEUE))


def _rate(interval: float = LONG, *, burst: int = 1, strict: bool = False) -> RateDemand:
    """Return a rate that no other test uses."""
    return RateDemand(key=f"rate:{new_id(0)}", interval=interval, burst=burst, strict=strict)


async def _take(
    driver: JobDriver, jobs: list[DispatchedJob], *rates: RateDemand, is_sure: bool = False
) -> TakenStarts:
    partition = driver.schedulers.partition_of(jobs[0].queue)
    rated = [RatedJob(job.id, job.token, rates, is_sure=is_sure) for job in jobs]
    taken = await driver.schedulers.take_starts(partition, await driver.epoch(partition), rated, lead=_LEAD)
    assert taken is not None
    return taken
