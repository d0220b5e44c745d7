"""Races between several stores on one database, each with exactly one winner."""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from taskmq.contracts.jobs import DueJob, JobRecord, JobUpdate, Pick, partition_key
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.states import CHANGEABLE, TERMINAL, JobState
from taskmq.testing.job_store.model import JobModel
from taskmq.testing.job_store.values import lane_of, shard_of
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver, error, ids, report
from taskmq.testing.runner import case

_T = TypeVar("_T")

_WRITERS = 50
_ROUNDS = 4
_KINDS: Sequence[ReportKind] = ("retry", "snoozed", "interrupted", "succeeded")
_ENDS: Sequence[ReportKind] = ("succeeded", "failed")


class Races(JobStoreCase):
    """Guarantees for competing callers: one wins, and the others are rejected."""

    @case
    async def test_only_one_of_many_changes_to_one_version_applies(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        job = await drivers[0].submit(due=HOUR)

        for turn in range(_ROUNDS):
            answers = await _gather(
                drivers[number % 2].update(job, priority=number % 10, note=f"{turn} {number}")
                for number in range(_WRITERS)
            )
            won = [number for number, answer in enumerate(answers) if answer is not None]
            assert len(won) == 1, turn
            job = await drivers[0].read(job)
            assert (job.version, job.priority) == (turn + 2, won[0] % 10)

        events = await drivers[1].store.events(job.id)
        assert [event.version for event in events] == [*range(2, _ROUNDS + 2)]

    @case
    async def test_many_writers_on_few_jobs_leave_consecutive_versions(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        jobs = [await drivers[0].submit(due=HOUR) for _ in range(5)]

        won = await _gather(_change_priority(drivers[number % 2], jobs[number % 5]) for number in range(_WRITERS))

        for number, job in enumerate(jobs):
            versions = sorted(won[number::5])
            assert versions == [*range(2, len(versions) + 2)]
            assert (await drivers[0].read(job)).version == versions[-1]
            assert [event.version for event in await drivers[1].store.events(job.id)] == versions

    @case
    async def test_fifty_writers_on_one_job_match_the_history_of_the_reference(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        job = await drivers[0].submit(due=HOUR)

        changes = await _gather(_change(drivers[number % 2], job, number) for number in range(_WRITERS))

        # The successful updates, in version order.
        took_place = sorted(
            ((record, update) for record, update in changes if record is not None), key=lambda each: each[0].version
        )
        assert [record.version for record, _ in took_place] == [*range(2, len(took_place) + 2)]
        model = JobModel(now=job.submitted)
        model.jobs[job.id] = job
        for record, update in took_place:
            changed = model.update(update)
            assert changed is not None
            assert replace(changed, finished=record.finished) == record
        record = await drivers[1].read(job)
        assert replace(model.jobs[job.id], finished=record.finished) == record
        expected = [(event.version, event.kind, event.state, event.by) for event in model.events(job.id)]
        events = await drivers[1].store.events(job.id)
        assert [(event.version, event.kind, event.state, event.by) for event in events] == expected

    @case
    async def test_a_concurrent_cancel_and_dispatch_have_one_winner(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = await driver.submit_many(20)
        (lane,) = await driver.lanes()
        epoch = await driver.epoch(driver.schedulers.partition_of(QUEUE))

        batches, cancelled = await asyncio.gather(
            _gather(driver.try_dispatch(Pick(lane, 5), epoch=epoch) for _ in range(4)),
            _gather(other.update(job, JobState.CANCELLED, kind="cancel") for job in jobs),
        )

        dispatched = [job_id for batch in batches if batch for job_id in ids(batch.jobs)]
        ended = [job.id for job, version in zip(jobs, cancelled, strict=True) if version is not None]
        assert len(set(dispatched)) == len(dispatched)
        assert not set(dispatched) & set(ended)
        for job in jobs:
            state = await driver.state(job)
            if job.id in ended:
                assert state is JobState.CANCELLED
            else:
                assert state is (JobState.DISPATCHED if job.id in dispatched else JobState.QUEUED)

    @case
    async def test_two_schedulers_on_one_lane_never_dispatch_the_same_job(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        jobs = await drivers[0].submit_many(100)
        (lane,) = await drivers[0].lanes()
        partition = drivers[0].schedulers.partition_of(QUEUE)
        epoch = await drivers[0].epoch(partition)

        batches = await _gather(
            drivers[number % 2].schedulers.dispatch(partition, epoch, [Pick(lane, 7)]) for number in range(30)
        )
        while (rest := await drivers[0].try_dispatch(epoch=epoch)) is not None:
            batches.append(rest)

        taken = [job_id for batch in batches if batch for job_id in ids(batch.jobs)]
        assert sorted(taken) == sorted(ids(jobs))
        numbers = [batch.id for batch in batches if batch]
        assert len(set(numbers)) == len(numbers)

    @case
    async def test_only_one_of_many_reports_with_one_token_ends_the_job(self) -> None:
        drivers = [self.driver() for _ in range(2)]

        for kind in _ENDS:
            job = await drivers[0].dispatch_new()
            answers = await _gather(
                drivers[number % 2].schedulers.apply([report(job, kind, worker=f"w{number}")])
                for number in range(_WRITERS)
            )
            outcomes = [applied.outcome for (applied,) in answers]
            assert outcomes.count("accepted") == 1
            assert outcomes.count("superseded") == _WRITERS - 1
            record = await drivers[0].read(job)
            assert record.worker == f"w{outcomes.index('accepted')}"
            assert record.version == 3

    @case
    async def test_only_one_of_a_concurrent_end_and_retry_counts(self) -> None:
        drivers = [self.driver() for _ in range(2)]

        for turn in range(10):
            job = await drivers[0].dispatch_new()
            (ended,), (retried,) = await asyncio.gather(
                drivers[turn % 2].schedulers.apply([report(job, "succeeded")]),
                drivers[1 - turn % 2].schedulers.apply([report(job, "retry", delay=HOUR, error=error("no"))]),
            )
            state = await drivers[0].state(job)
            assert sorted([ended.outcome, retried.outcome]) == ["accepted", "superseded"]
            assert state is (JobState.SUCCEEDED if ended.outcome == "accepted" else JobState.RETRYING)
            assert len(await drivers[0].store.attempts(job.id)) == (retried.outcome == "accepted")

    @case
    async def test_reports_on_the_same_jobs_in_opposite_orders_do_not_deadlock(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        await drivers[0].submit_many(60)
        jobs = (await drivers[0].dispatch()).jobs
        reports = [report(job, "succeeded") for job in jobs]

        answers = await _gather(
            drivers[number % 2].schedulers.apply(reports if number % 4 < 2 else reports[::-1]) for number in range(8)
        )

        outcomes = [applied.outcome for answer in answers for applied in answer]
        assert outcomes.count("accepted") == len(jobs)
        assert {await drivers[0].state(job) for job in jobs} == {JobState.SUCCEEDED}

    @case
    async def test_only_one_of_many_concurrent_timer_firings_queues_the_job(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        job = await drivers[0].submit(due=HOUR)
        job = await drivers[0].expect_update(job, due=await drivers[0].store.now_ms() - 1_000)
        timer = DueJob(job.due, job.id, shard_of(job.id))
        partition = timer.shard % drivers[0].schedulers.partitions
        epoch = await drivers[0].epoch(partition)

        answers = await _gather(
            drivers[number % 2].schedulers.fire(partition, epoch, [timer]) for number in range(_WRITERS)
        )

        assert max(answers, key=len) == {lane_of(await drivers[0].read(job))}
        assert sum(map(len, answers)) == 1
        assert (await drivers[0].read(job)).version == job.version + 1

    @case
    async def test_writers_of_all_kinds_follow_the_transition_table(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        jobs = await drivers[0].submit_many(6)

        await _gather(_make_changes(drivers[number % 2], jobs, number) for number in range(_WRITERS))

        for job in jobs:
            record = await drivers[0].read(job)
            lanes = await drivers[1].lanes(record.queue)
            timers = [timer.id for timer in await drivers[1].timers()]
            events = await drivers[1].store.events(job.id)
            assert (record.id in timers) is (record.state in (JobState.SCHEDULED, JobState.RETRYING))
            assert bool(lanes) or record.state is not JobState.QUEUED
            assert (record.finished is not None) is (record.state in TERMINAL)
            changes = [event.version for event in events if event.kind in ("hold", "release", "cancel")]
            assert changes == sorted(set(changes))
            assert record.version >= max(changes, default=1)


async def _gather(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    return list(await asyncio.gather(*calls))


async def _change_priority(driver: JobDriver, job: JobRecord) -> int:
    """Retry until the change succeeds; return its version."""
    while True:
        now = await driver.read(job)
        changed = await driver.update(now, priority=(now.priority + 1) % 10)
        if changed is not None:
            return changed.version


async def _change(driver: JobDriver, job: JobRecord, number: int) -> tuple[JobRecord | None, JobUpdate]:
    """Retry until a change of this writer's kind succeeds or the job has ended; return both."""
    while True:
        now = await driver.read(job)
        update = _update_of(now, number)
        changed = await driver.store.update(update)
        if changed is not None or now.state in TERMINAL:
            return changed, update


def _update_of(now: JobRecord, number: int) -> JobUpdate:
    fields: dict[str, Any] = {"priority": number % 10, "due": now.due + number}
    if number == _WRITERS - 1:
        after, kind = JobState.CANCELLED, "cancel"
    elif number % 3 == 0:
        is_held = now.state is JobState.HELD
        after, kind = (JobState.SCHEDULED, "release") if is_held else (JobState.HELD, "hold")
    else:
        after, kind = now.state, "change"
    fields |= {"id": now.id, "before": now.state, "version": now.version, "after": after, "kind": kind}
    return JobUpdate(by=f"writer {number}", **fields)


async def _make_changes(driver: JobDriver, jobs: list[JobRecord], number: int) -> None:
    for turn in range(6):
        job = await driver.read(jobs[(number + turn) % len(jobs)])
        match (number + turn) % 5:
            case 0 if job.state in CHANGEABLE and job.state is not JobState.HELD:
                await driver.update(job, JobState.HELD, kind="hold")
            case 1 if job.state is JobState.HELD:
                await driver.update(job, JobState.QUEUED, kind="release")
            case 2:
                partition = driver.schedulers.partition_of(QUEUE)
                held = await driver.schedulers.leases.find(partition_key(partition))
                epoch = held.token if held else await driver.next_epoch(partition)
                batch = await driver.try_dispatch(epoch=epoch)
                kind = _KINDS[number % len(_KINDS)]
                reports = [report(one, kind, delay=HOUR) for one in batch.jobs] if batch else []
                await driver.schedulers.apply(reports)
            case 3 if job.state in (JobState.RETRYING, JobState.SCHEDULED):
                await driver.update(job, JobState.QUEUED, due=await driver.store.now_ms(), kind="retry")
            case _:
                await driver.update(job, priority=turn)
