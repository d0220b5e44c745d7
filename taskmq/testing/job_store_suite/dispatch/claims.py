"""Tests of claims: never held by more dispatches than they have places, and free when a dispatch ends in any way."""

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    DispatchedJob,
    JobClaim,
    JobRecord,
    Lane,
    OpenedClaims,
    Prunable,
    Retaining,
    TakenClaims,
    WorkDone,
)
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.units import DAY_MS
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver
from taskmq.testing.runner import case

_LANE = Lane(QUEUE, 4, "")
_ONE: Final = JobClaim("places:one")
_TWO: Final = JobClaim("places:two", places=2)
_KEY: Final = JobClaim("once:key", ttl=HOUR)
_FREEING: Final[tuple[ReportKind, ...]] = (
    "succeeded", "failed", "retry", "snoozed", "expired", "cancelled", "refused", "interrupted",
)  # fmt: skip


class ClaimCases(JobStoreCase):
    """Every guarantee of `take_claims` and `open_claims`."""

    @case
    async def test_a_claim_has_at_most_as_many_holders_as_places(self) -> None:
        driver = self.driver()
        jobs = await _dispatch_jobs(driver, 4, _TWO)

        taken = await _take(driver, jobs)

        assert taken.fences == {job.id: 0 for job in jobs[:2]}
        assert taken.waiting == {job.id: _TWO.name for job in jobs[2:]}
        for job in jobs[2:]:
            record = await driver.read(job)
            assert (record.state, record.attempt) == (JobState.QUEUED, 1)
            assert await driver.schedulers.gate_of(job.id) == _TWO.name
            assert await driver.store.events(job.id) == []
        assert await driver.lanes() == []

    @case
    async def test_every_end_of_a_dispatch_frees_its_claims(self) -> None:
        driver = self.driver()
        for kind in _FREEING:
            (job,) = await _dispatch_jobs(driver, 1, _ONE)
            assert job.id in (await _take(driver, [job])).fences, kind
            await driver.expect_accepted(job, kind, delay=HOUR)
        (job,) = await _dispatch_jobs(driver, 1, _ONE)
        await _take(driver, [job])
        await driver.undispatch(job, delay=HOUR / 1000)
        (job,) = await _dispatch_jobs(driver, 1, _ONE)
        await _take(driver, [job])
        await driver.fail(job, reason="never")

        (job,) = await _dispatch_jobs(driver, 1, _ONE)

        assert job.id in (await _take(driver, [job])).fences

    @case
    async def test_a_run_keeps_its_claims(self) -> None:
        driver = self.driver()
        first, second = await _dispatch_jobs(driver, 2, _ONE)
        await _take(driver, [first])
        await driver.expect_accepted(first, "started", started=await driver.store.now_ms())

        assert (await _take(driver, [second])).waiting == {second.id: _ONE.name}

    @case
    async def test_a_job_that_is_published_again_keeps_its_key_under_a_later_fence(self) -> None:
        driver, other = self.driver(), self.driver()
        first, second = await _dispatch_jobs(driver, 2, _KEY)
        before = await _take(driver, [first])

        again = await _take(other, [first])

        # The earlier message may have a run that goes on.
        assert again.fences.keys() == {first.id}
        assert again.fences[first.id] > before.fences[first.id]
        assert (await _take(other, [second])).waiting == {second.id: _KEY.name}

    @case
    async def test_a_job_gets_all_of_its_claims_or_none(self) -> None:
        driver = self.driver()
        (first,) = await _dispatch_jobs(driver, 1, _ONE)
        (both,) = await _dispatch_jobs(driver, 1, _TWO, _ONE)
        others = await _dispatch_jobs(driver, 2, _TWO)

        taken = await _take(driver, [first, both, *others])

        assert taken.waiting == {both.id: _ONE.name}
        assert taken.fences.keys() == {first.id, *(job.id for job in others)}

    @case
    async def test_a_replaced_scheduler_takes_no_claims(self) -> None:
        driver = self.driver()
        (job,) = await _dispatch_jobs(driver, 1, _ONE)
        partition = driver.schedulers.partition_of(QUEUE)
        before = await driver.epoch(partition)
        await driver.next_epoch(partition)

        assert await driver.schedulers.take_claims(partition, before, [job]) is None
        assert await driver.state(job) is JobState.DISPATCHED

    @case
    async def test_a_job_that_is_not_dispatched_gets_no_claims(self) -> None:
        driver = self.driver()
        ended, asked, live = await _dispatch_jobs(driver, 3, _ONE)
        await driver.expect_accepted(ended, "succeeded")
        await driver.request_cancel(await driver.read(asked))

        assert await _take(driver, [ended, asked]) == TakenClaims()
        assert live.id in (await _take(driver, [live])).fences

    @case
    async def test_a_waiting_job_can_be_changed_and_ended(self) -> None:
        driver = self.driver()
        first, second, third = await _dispatch_jobs(driver, 3, _ONE)
        await _take(driver, [first, second, third])

        cancelled = await driver.expect_update(await driver.read(second), JobState.CANCELLED, kind="cancel")
        await driver.expect_update(await driver.read(third), JobState.HELD, kind="hold")

        assert cancelled.state is JobState.CANCELLED
        assert [await driver.schedulers.gate_of(job.id) for job in (second, third)] == ["", ""]

    @case
    async def test_jobs_of_all_partitions_wait_in_one_order(self) -> None:
        driver = self.driver()
        (holder,) = await _dispatch_jobs(driver, 1, _ONE)
        await _take(driver, [holder])
        names = _queues_of_other_partitions(driver, 2)
        first = await _dispatch_jobs(driver, 1, _ONE, queue=names[0], priority=2)
        second = await _dispatch_jobs(driver, 1, _ONE, queue=names[1], priority=9)
        await _take(driver, first)
        await _take(driver, second)

        assert (await driver.schedulers.open_claims({_ONE.name: 1})).lanes == frozenset()
        await driver.expect_accepted(holder, "succeeded")
        opened = await driver.schedulers.open_claims({_ONE.name: 1})

        assert opened.lanes == {Lane(names[1], 9, "")}
        assert opened.waiting == {_ONE.name}
        last = await driver.schedulers.open_claims({_ONE.name: 2})
        assert last.lanes == {Lane(names[0], 2, "")}
        assert not last.waiting

    @case
    async def test_concurrent_schedulers_never_exceed_the_places(self) -> None:
        driver = self.driver()
        names = [QUEUE, *_queues_of_other_partitions(driver, 2)]
        held: set[str] = set()
        for _ in range(5):
            batches = [await _dispatch_jobs(driver, 3, _TWO, _ONE, queue=name) for name in names]
            answers = await asyncio.gather(*(_take(driver, jobs) for jobs in batches))
            holders = [job for taken in answers for job in taken.fences]
            assert len(holders) == 1
            held.update(holders)
            for job in [job for jobs in batches for job in jobs if job.id in holders]:
                await driver.expect_accepted(job, "succeeded")

        assert len(held) == 5

    @case
    async def test_the_fence_of_a_key_grows_over_all_its_jobs(self) -> None:
        driver = self.driver()
        fences: list[int] = []
        for _ in range(3):
            (job,) = await _dispatch_jobs(driver, 1, _KEY)
            fences.append((await _take(driver, [job])).fences[job.id])
            await driver.expect_accepted(job, "failed")

        assert fences == sorted(set(fences))
        assert fences[0] > 0

    @case
    async def test_finished_work_answers_later_jobs_of_the_key(self) -> None:
        driver = self.driver()
        first, *others = await _dispatch_jobs(driver, 3, _KEY)
        await _take(driver, [first, *others])
        await driver.expect_accepted(first, "succeeded", content_type="application/json", result=b"7")
        assert (await driver.schedulers.open_claims({_KEY.name: 1})).lanes == {_LANE}
        others = [replace(job, claims=(_KEY,)) for job in (await driver.dispatch()).jobs]
        (later,) = await _dispatch_jobs(driver, 1, _KEY)

        taken = await _take(driver, [*others, later])

        done = WorkDone(first.id, "application/json", b"7")
        assert taken.done == {job.id: done for job in (*others, later)}
        assert len(taken.done) == 3
        assert await driver.state(later) is JobState.DISPATCHED

    @case
    async def test_a_key_whose_time_is_over_is_free(self) -> None:
        driver = self.driver()
        brief = JobClaim("once:brief", ttl=1)
        first, second = await _dispatch_jobs(driver, 2, brief)
        await _take(driver, [first])
        long_ago = await driver.store.now_ms() - HOUR
        await driver.expect_accepted(first, "succeeded", result=b"7", started=long_ago, ran=1)

        assert second.id in (await _take(driver, [second])).fences

    @case
    async def test_work_that_failed_answers_no_job_and_may_be_resumed(self) -> None:
        driver = self.driver()
        first, second = await _dispatch_jobs(driver, 2, _KEY)
        await _take(driver, [first])
        await driver.expect_accepted(first, "failed")

        assert second.id in (await _take(driver, [second])).fences
        await driver.expect_accepted(second, "failed")
        resumed = await driver.again(
            await driver.expect_update(await driver.read(first), JobState.QUEUED, kind="retry")
        )
        again = replace(resumed, claims=(_KEY,))
        assert again.id in (await _take(driver, [again])).fences

    @case
    async def test_a_suspended_job_keeps_its_key_and_gives_up_its_limits(self) -> None:
        driver = self.driver()
        (first,) = await _dispatch_jobs(driver, 1, _KEY, _ONE)
        before = await _take(driver, [first])
        await _suspend(driver, first)
        (second,) = await _dispatch_jobs(driver, 1, _KEY)
        (limited,) = await _dispatch_jobs(driver, 1, _ONE)

        assert (await _take(driver, [second])).waiting == {second.id: _KEY.name}
        assert limited.id in (await _take(driver, [limited])).fences
        await driver.expect_accepted(limited, "succeeded")
        assert (await driver.schedulers.open_claims({_KEY.name: 1})).lanes == frozenset()
        again = replace(await driver.again(first), claims=(_KEY, _ONE))
        after = await _take(driver, [again])
        assert after.fences[first.id] > before.fences[first.id]
        await driver.expect_accepted(again, "succeeded", content_type="application/json", result=b"7")
        assert (await driver.schedulers.open_claims({_KEY.name: 1})).lanes == {_LANE}
        (found,) = (await driver.dispatch()).jobs
        done = WorkDone(first.id, "application/json", b"7")
        assert (await _take(driver, [replace(found, claims=(_KEY,))])).done == {second.id: done}

    @case
    async def test_a_job_that_is_held_because_its_calls_differ_keeps_its_key(self) -> None:
        driver = self.driver()
        first, second = await _dispatch_jobs(driver, 2, _KEY)
        await _take(driver, [first])
        why = ErrorRecord(type_name=MISMATCH, message="its calls differ")
        held = await driver.expect_accepted(first, "held", error=why)

        assert (await _take(driver, [second])).waiting == {second.id: _KEY.name}
        await driver.expect_update(held, JobState.QUEUED, kind="release")
        again = replace(await driver.again(first), claims=(_KEY,))
        assert again.id in (await _take(driver, [again])).fences

    @case
    async def test_a_suspended_job_passes_the_gate_of_its_own_key(self) -> None:
        driver = self.driver()
        first, second = await _dispatch_jobs(driver, 2, _KEY)
        await _take(driver, [first, second])
        await _suspend(driver, first)
        again = await driver.again(first)
        # Its scheduler had seen the second job in flight.
        await driver.undispatch(again)
        partition = driver.schedulers.partition_of(QUEUE)
        await driver.schedulers.put_behind(partition, await driver.epoch(partition), {first.id: _KEY.name})

        opened = await driver.schedulers.open_claims({_KEY.name: 1})

        assert opened == OpenedClaims(frozenset({_LANE}), frozenset({_KEY.name}))
        assert [await driver.schedulers.gate_of(job.id) for job in (first, second)] == ["", _KEY.name]

    @case
    async def test_a_suspended_job_frees_its_key_when_it_ends_or_fails_later(self) -> None:
        driver = self.driver()
        for kind in _FREEING[1:]:
            (job,) = await _dispatch_jobs(driver, 1, _KEY)
            await _take(driver, [job])
            await _suspend(driver, job)
            again = replace(await driver.again(job), claims=(_KEY,))
            assert again.id in (await _take(driver, [again])).fences, kind
            await driver.expect_accepted(again, kind, delay=HOUR)
        (job,) = await _dispatch_jobs(driver, 1, _KEY)
        await _take(driver, [job])
        asleep = await _suspend(driver, job)
        await driver.expect_update(asleep, JobState.CANCELLED, kind="cancel")

        (job,) = await _dispatch_jobs(driver, 1, _KEY)

        assert job.id in (await _take(driver, [job])).fences

    @case
    async def test_the_key_of_an_erased_job_is_free(self) -> None:
        driver = self.driver()
        store = driver.store
        assert isinstance(store, Retaining)
        assert isinstance(store, Prunable)
        for ttl in (HOUR, 60 * DAY_MS):
            done, later = await _dispatch_jobs(driver, 2, replace(_KEY, name=f"once:{ttl}", ttl=ttl))
            await _take(driver, [done])
            await driver.expect_accepted(done, "succeeded", result=b"7")
            # Results of keys that outlive the history are copied.
            await store.prune(keep_days=30)

            assert await store.forget_ended([done.id]) == 1

            assert later.id in (await _take(driver, [later])).fences

    @case
    async def test_the_key_of_a_job_that_is_deleted_early_is_remembered(self) -> None:
        driver = self.driver()
        assert isinstance(driver.store, Retaining)
        for ttl in (HOUR, 60 * DAY_MS):
            done, later = await _dispatch_jobs(driver, 2, replace(_KEY, name=f"once:{ttl}", ttl=ttl))
            await _take(driver, [done])
            await driver.expect_accepted(done, "succeeded", result=b"7")

            assert await driver.store.forget_ended([done.id], keeps_keys=True) == 1

            await driver.schedulers.maintain()
            found = (await _take(driver, [later])).done
            assert found[later.id].result == b"7"

    @case
    async def test_upkeep_keeps_claims_that_count(self) -> None:
        driver = self.driver()
        held, done, other = await _dispatch_jobs(driver, 3, _KEY)
        one, two = await _dispatch_jobs(driver, 2, _ONE)
        await _take(driver, [held, one])
        await driver.schedulers.maintain()

        assert (await _take(driver, [two])).waiting == {two.id: _ONE.name}
        await driver.expect_accepted(held, "succeeded", result=b"7")
        await driver.schedulers.maintain()
        assert (await _take(driver, [done, other])).done.keys() == {done.id, other.id}


async def _dispatch_jobs(
    driver: JobDriver, count: int, *claims: JobClaim, queue: str = QUEUE, priority: int = 4
) -> list[DispatchedJob]:
    """Submit and dispatch jobs with these claims, in their own order."""
    jobs: list[JobRecord] = [await driver.submit(queue=queue, priority=priority) for _ in range(count)]
    found = {job.id: job for job in (await driver.dispatch(queue=queue)).jobs}
    return [replace(found[job.id], claims=claims) for job in jobs]


async def _suspend(driver: JobDriver, job: DispatchedJob) -> JobRecord:
    """Report that a call of the task suspended the job for an hour."""
    why = ErrorRecord(type_name=SUSPENDED, message="asleep")
    return await driver.expect_accepted(job, "snoozed", delay=HOUR, error=why)


async def _take(driver: JobDriver, jobs: Sequence[DispatchedJob]) -> TakenClaims:
    """Take the claims of jobs of one queue, as the holder of its partition."""
    partition = driver.schedulers.partition_of(jobs[0].queue)
    taken = await driver.schedulers.take_claims(partition, await driver.epoch(partition), jobs)
    assert taken is not None
    return taken


def _queues_of_other_partitions(driver: JobDriver, count: int) -> list[str]:
    """Return queues of different partitions, none of them that of `QUEUE`."""
    found = {driver.schedulers.partition_of(QUEUE): QUEUE}
    for number in range(1_000):
        found.setdefault(driver.schedulers.partition_of(f"other-{number}"), f"other-{number}")
    return [name for name in found.values() if name != QUEUE][:count]
