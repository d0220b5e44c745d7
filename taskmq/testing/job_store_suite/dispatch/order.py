"""Tests of lines: the jobs of one order key take their claim in the order of their submission."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob, JobClaim, JobRecord, Lane, Pick, TakenClaims
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.keys import line_key
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import END_KINDS, HOUR, QUEUE, JobDriver, after, ids
from taskmq.testing.job_store_suite.schedules.steps import create_schedule, fire, firing_of
from taskmq.testing.runner import case

_LINE: Final = JobClaim(line_key(QUEUE, "acme", tenant=None))
_OTHER: Final = JobClaim(line_key(QUEUE, "other", tenant=None))
_STAYING: Final[tuple[ReportKind, ...]] = ("retry", "snoozed", "interrupted")


class OrderCases(JobStoreCase):
    """Every guarantee of claims that are lines."""

    @case
    async def test_jobs_of_a_line_run_one_at_a_time_in_the_order_of_submission(self) -> None:
        driver = self.driver()
        jobs = await _submit(driver, 4)
        order: list[str] = []

        while batch := await driver.try_dispatch():
            taken = await _take(driver, batch.jobs[::-1])
            assert len(taken.fences) == 1
            assert set(taken.waiting.values()) <= {_LINE.name}
            (job,) = [job for job in batch.jobs if job.id in taken.fences]
            order.append(job.id)
            assert not (await driver.schedulers.open_claims({_LINE.name: 1})).lanes
            await driver.expect_accepted(job, "succeeded")
            await driver.schedulers.open_claims({_LINE.name: 1})

        assert order == ids(jobs)

    @case
    async def test_one_submission_keeps_the_order_of_its_jobs_whatever_their_ids(self) -> None:
        driver = self.driver()
        new = [await driver.new(line=_LINE.name) for _ in range(5)]
        await driver.store.submit(new[::-1])
        await driver.store.submit(new)

        for job in new[::-1]:
            assert await _run(driver) == job.id

    @case
    async def test_an_occurrence_joins_the_line_when_its_schedule_fires(self) -> None:
        driver = self.driver()
        row = await create_schedule(driver.store.schedules, "booking", next=5)
        occurrence = await driver.new(line=_LINE.name)
        (first,) = await _submit(driver, 1)
        await fire(driver, [firing_of(row, occurrence)])
        (last,) = await _submit(driver, 1)

        for expected in (first.id, occurrence.id, last.id):
            assert await _run(driver) == expected

    @case
    async def test_a_job_that_does_not_end_keeps_its_place(self) -> None:
        driver = self.driver()
        for kind in _STAYING:
            first, second = await _submit(driver, 2)
            one, two = await _dispatch(driver, first, second)
            await _take(driver, [one])
            await driver.expect_accepted(one, kind, delay=HOUR)

            assert (await _take(driver, [two])).waiting == {second.id: _LINE.name}
            assert not (await driver.schedulers.open_claims({_LINE.name: 1})).lanes
            again = replace(await driver.again(first), claims=(_LINE,))
            assert again.id in (await _take(driver, [again])).fences
            await driver.expect_accepted(again, "succeeded")
            assert (await driver.schedulers.open_claims({_LINE.name: 1})).lanes == {Lane(QUEUE, 4, "")}
            assert await _run(driver) == second.id

    @case
    async def test_a_delayed_held_or_waiting_job_keeps_its_place_until_it_is_cancelled(self) -> None:
        driver = self.driver()
        upstream = await driver.submit(due=HOUR)
        waits: Sequence[dict[str, Any]] = ({"due": HOUR}, {"held": True}, {"detail": after(upstream)})
        for fields in waits:
            (first,) = await _submit(driver, 1, **fields)
            (second,) = await _submit(driver, 1)
            assert (await _take(driver, await _dispatch(driver))).waiting == {second.id: _LINE.name}
            assert not (await driver.schedulers.open_claims({_LINE.name: 1})).lanes

            await driver.expect_update(await driver.read(first), JobState.CANCELLED, kind="cancel")

            assert (await driver.schedulers.open_claims({_LINE.name: 1})).lanes == {Lane(QUEUE, 4, "")}
            assert await _run(driver) == second.id

    @case
    async def test_every_end_of_the_first_job_frees_its_place(self) -> None:
        driver = self.driver()
        for kind in END_KINDS:
            first, second = await _submit(driver, 2)
            one, two = await _dispatch(driver, first, second)
            await _take(driver, [one, two])
            await driver.expect_accepted(one, kind)

            assert (await driver.schedulers.open_claims({_LINE.name: 1})).lanes, kind
            assert await _run(driver) == second.id

    @case
    async def test_priority_counts_between_keys_and_not_within_one(self) -> None:
        driver = self.driver()
        (low,) = await _submit(driver, 1, priority=1)
        (high,) = await _submit(driver, 1, priority=9)
        (other,) = await _submit(driver, 1, _OTHER, priority=9)
        one, two, third = await _dispatch(driver, low, high, other)

        taken = await _take(driver, [two, replace(third, claims=(_OTHER,)), one])

        assert taken.fences.keys() == {low.id, other.id}
        assert taken.waiting == {high.id: _LINE.name}
        assert (await driver.read(high)).dispatched is None

    @case
    async def test_a_resumed_or_moved_job_gets_the_last_place(self) -> None:
        driver = self.driver()
        first, second = await _submit(driver, 2)
        one, two = await _dispatch(driver, first, second)
        await _take(driver, [one, two])
        failed = await driver.expect_accepted(one, "failed")
        resumed = await driver.update(failed, JobState.QUEUED, kind="retry", due=await driver.store.now_ms())
        assert resumed is not None
        assert (await _take(driver, await _dispatch(driver))).waiting == {first.id: _LINE.name}
        await driver.schedulers.open_claims({_LINE.name: 1})
        (third,) = await _submit(driver, 1)
        assert await _run(driver) == second.id

        await driver.expect_update(await driver.read(first), queue="elsewhere")
        await driver.schedulers.open_claims({_LINE.name: 1})

        assert await _run(driver) == third.id

    @case
    async def test_a_job_that_left_its_queue_and_came_back_gets_the_last_place(self) -> None:
        driver = self.driver()
        first, second = await _submit(driver, 2)
        away = await driver.expect_update(first, queue="elsewhere")
        await driver.expect_update(away, queue=QUEUE)

        for job in (second, first):
            await driver.schedulers.open_claims({_LINE.name: 1})
            assert await _run(driver) == job.id

    @case
    async def test_a_resumed_job_that_is_not_dispatched_gets_the_last_place(self) -> None:
        driver = self.driver()
        first, second = await _submit(driver, 2)
        (lane,) = await driver.lanes(QUEUE)
        (one,) = (await driver.dispatch(Pick(lane, 1))).jobs
        await _take(driver, [one])
        failed = await driver.expect_accepted(one, "failed")
        resumed = await driver.update(failed, JobState.QUEUED, kind="retry", due=await driver.store.now_ms())
        assert resumed is not None
        partition = driver.schedulers.partition_of(QUEUE)
        gates = dict.fromkeys((first.id, second.id), _LINE.name)
        await driver.schedulers.put_behind(partition, await driver.epoch(partition), gates)

        for job in (second, first):
            await driver.schedulers.open_claims({_LINE.name: 1})
            assert await _run(driver) == job.id

    @case
    async def test_upkeep_keeps_the_order(self) -> None:
        driver = self.driver()
        ended, first, second = await _submit(driver, 3)
        jobs = await _dispatch(driver, ended, first, second)
        await _take(driver, jobs)
        await driver.expect_accepted(jobs[0], "succeeded")
        await driver.schedulers.maintain()
        await driver.schedulers.open_claims({_LINE.name: 1})

        assert (await _take(driver, await _dispatch(driver))).fences.keys() == {first.id}
        assert await driver.schedulers.gate_of(second.id) == _LINE.name


async def _submit(driver: JobDriver, count: int, claim: JobClaim = _LINE, **fields: object) -> list[JobRecord]:
    return [await driver.submit(line=claim.name, **fields) for _ in range(count)]


async def _dispatch(driver: JobDriver, *jobs: JobRecord) -> list[DispatchedJob]:
    """Dispatch all ready jobs; return these, or all of them."""
    found = {job.id: replace(job, claims=(_LINE,)) for job in (await driver.dispatch()).jobs}
    return [found[job.id] for job in jobs] if jobs else list(found.values())


async def _take(driver: JobDriver, jobs: Sequence[DispatchedJob]) -> TakenClaims:
    """Take the line's claim, or the jobs' own, as the holder of the partition."""
    partition = driver.schedulers.partition_of(jobs[0].queue)
    claiming = [replace(job, claims=job.claims or (_LINE,)) for job in jobs]
    taken = await driver.schedulers.take_claims(partition, await driver.epoch(partition), claiming)
    assert taken is not None
    return taken


async def _run(driver: JobDriver) -> str:
    """Dispatch the ready jobs of the line, and end the one that gets the claim; return its id."""
    jobs = await _dispatch(driver)
    (job_id,) = (await _take(driver, jobs)).fences
    (job,) = [job for job in jobs if job.id == job_id]
    await driver.expect_accepted(job, "succeeded")
    await driver.schedulers.open_claims({_LINE.name: 1})
    return job_id
