"""Tests of the effect of a job's end on its dependents."""

import itertools
from collections.abc import Sequence

from taskmq.contracts.jobs import AppliedReport, JobDetail, JobRecord, Released
from taskmq.model.jobs.dependencies import DependencyCondition, JobDependency, after_upstream
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.jobs.reports import Report
from taskmq.model.states import CHANGEABLE, TERMINAL, UNDERWAY, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, after, report
from taskmq.testing.runner import case

_CONDITIONS: Sequence[DependencyCondition] = ("succeeded", "ended", "failed")


class DependencyEnds(JobStoreCase):
    """Checks that `release_dependents` does what `DispatchStore` promises."""

    @case
    async def test_each_end_of_a_job_affects_its_dependents_by_their_condition(self) -> None:
        driver = self.driver()

        for state in sorted(TERMINAL):
            first = await driver.submit(queue=f"first {state}", held=True)
            waiting: dict[DependencyCondition, JobRecord] = {
                condition: await driver.submit(queue=f"{state} {condition}", detail=after(first, condition=condition))
                for condition in _CONDITIONS
            }
            await _end(driver, first.id, state)
            queues = await driver.release()

            for condition, job in waiting.items():
                expected = after_upstream(condition, state) or JobState.QUEUED
                assert await driver.state(job) is expected, (state, condition)
                assert (job.queue in queues) is (expected is JobState.QUEUED)
                assert await driver.store.unmet(job.id) == []

    @case
    async def test_a_report_shows_that_other_jobs_wait_for_this_one(self) -> None:
        driver = self.driver()
        first, alone = await driver.dispatch_new(queue="first"), await driver.dispatch_new(queue="alone")
        await driver.submit(detail=after(first))

        applied = await driver.schedulers.apply([report(first, "succeeded"), report(alone, "succeeded")])

        assert applied == [
            AppliedReport("accepted", JobState.SUCCEEDED, "first", has_dependents=True),
            AppliedReport("accepted", JobState.SUCCEEDED, "alone"),
        ]
        assert not (await driver.report(first, "succeeded")).has_dependents

    @case
    async def test_a_job_runs_when_its_last_dependency_has_ended(self) -> None:
        driver = self.driver()
        first = [await driver.dispatch_new(queue=f"first {number}") for number in range(3)]
        job = await driver.submit(detail=after(*first))

        for one in first:
            assert await driver.state(job) is JobState.WAITING
            await driver.expect_accepted(one, "succeeded")
            await driver.release()

        free = await driver.read(job)
        assert (free.state, free.version) == (JobState.QUEUED, 2)
        assert free.due >= job.due
        assert [one.id for one in (await driver.dispatch()).jobs] == [job.id]

    @case
    async def test_a_scheduled_job_waits_for_its_time_and_its_dependencies(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        job = await driver.submit(due=HOUR, detail=after(first))

        await driver.expect_accepted(first, "succeeded")
        assert await driver.release() == set()

        assert await driver.state(job) is JobState.SCHEDULED
        assert [timer.id for timer in await driver.timers()] == [job.id]

    @case
    async def test_an_attempt_that_will_be_retried_is_not_an_end(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        job = await driver.submit(detail=after(first, condition="ended"))

        await driver.expect_accepted(first, "retry")
        assert await driver.release() == set()
        assert await driver.state(job) is JobState.WAITING
        await driver.expect_accepted(await driver.again(first), "failed")
        await driver.release()

        assert await driver.state(job) is JobState.QUEUED

    @case
    async def test_a_failure_propagates_down_the_whole_chain(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        chain = [await driver.submit(queue="chain", detail=after(first))]
        for _ in range(4):
            chain.append(await driver.submit(queue="chain", detail=after(chain[-1])))
        anyway = await driver.submit(detail=after(chain[-1], condition="ended"))

        await driver.expect_accepted(first, "failed")
        assert await driver.release() == {anyway.queue}

        assert [await driver.state(job) for job in chain] == [JobState.UPSTREAM_FAILED] * len(chain)
        assert await driver.state(anyway) is JobState.QUEUED

    @case
    async def test_a_job_that_expires_at_dispatch_ends_its_dependents(self) -> None:
        driver = self.driver()
        first = await driver.submit(queue="first", expires=-1)
        job = await driver.submit(detail=after(first))

        assert await driver.try_dispatch(queue="first") is None
        await driver.release()

        assert await driver.state(job) is JobState.UPSTREAM_FAILED

    @case
    async def test_jobs_ended_by_the_store_are_found_once_with_their_reason(self) -> None:
        driver, store = self.driver(), self.store()
        since = await store.now_ms()
        expired = await driver.submit(queue="expired", expires=-1)
        assert await driver.try_dispatch(queue="expired") is None
        failed = await driver.dispatch_new(queue="failed")
        follower = await driver.submit(queue="follower", detail=after(failed))
        last = await driver.dispatch_new(queue="last", tenant="acme")
        unwanted = await driver.submit(queue="unwanted", tenant="acme", detail=after(last, condition="failed"))
        await driver.fail(failed, reason="too large ☂")
        await driver.expect_accepted(last, "succeeded")
        await driver.release()

        ends = [one for one in await store.actions(since, limit=99) if one.entry.kind == "ended"]
        assert {one.job_id: (one.queue, one.tenant, one.entry.state) for one in ends} == {
            expired.id: ("expired", "", JobState.EXPIRED),
            failed.id: ("failed", "", JobState.FAILED),
            follower.id: ("follower", "", JobState.UPSTREAM_FAILED),
            unwanted.id: ("unwanted", "acme", JobState.SKIPPED),
        }
        assert len(ends) == 4
        for one in ends:
            job = await driver.read(one.job_id)
            assert (one.entry.version, one.entry.state) == (job.version, job.state)
            assert job.error is not None
            assert one.entry.note == job.error.message
            assert [one.entry] == await store.events(job.id)
        assert await store.events(last.id) == []

    @case
    async def test_cancelling_a_job_in_any_state_ends_its_dependents(self) -> None:
        driver = self.driver()

        for state in sorted(CHANGEABLE | UNDERWAY):
            first = await driver.make(state, queue=f"first {state}")
            second = await driver.submit(queue=f"second {state}", detail=after(first))
            third = await driver.submit(queue=f"third {state}", detail=after(second))
            anyway = await driver.submit(queue=f"anyway {state}", detail=after(first, condition="ended"))
            await _cancel(driver, first)
            assert await driver.state(first) is JobState.CANCELLED, state
            queues = await driver.release()

            assert await driver.state(second) is JobState.UPSTREAM_FAILED, state
            assert await driver.state(third) is JobState.UPSTREAM_FAILED, state
            assert await driver.state(anyway) is JobState.QUEUED, state
            assert queues == {anyway.queue}
            for job in (second, third, anyway):
                assert await driver.store.unmet(job.id) == []

    @case
    async def test_a_cancelled_job_is_not_released_by_its_dependencies(self) -> None:
        driver = self.driver()

        for held in (False, True):
            first = await driver.dispatch_new(queue=f"first {held}")
            second = await driver.submit(queue=f"second {held}", held=held, detail=after(first))
            third = await driver.submit(queue=f"third {held}", detail=after(second, condition="ended"))
            await _cancel(driver, second)
            assert await driver.release() == {third.queue}
            cancelled = await driver.read(second)
            await driver.expect_accepted(first, "succeeded")
            assert await driver.release() == set()

            assert await driver.read(second) == cancelled
            assert cancelled.state is JobState.CANCELLED
            assert await driver.lanes(second.queue) == []
            assert [job.id for job in (await driver.dispatch(queue=third.queue)).jobs] == [third.id]

    @case
    async def test_a_chain_is_cancelled_from_either_end_and_each_job_ends_once(self) -> None:
        driver = self.driver()

        for state, backwards in itertools.product(sorted(CHANGEABLE | UNDERWAY), (False, True)):
            chain = [await driver.make(state, queue=f"{state} {backwards}")]
            for _ in range(3):
                chain.append(await driver.submit(queue=f"{state} {backwards}", detail=after(chain[-1])))
            for job in reversed(chain) if backwards else chain:
                await _cancel(driver, await driver.read(job))
                await driver.release()

            found = [await driver.read(job) for job in chain]
            rest = JobState.CANCELLED if backwards else JobState.UPSTREAM_FAILED
            assert [job.state for job in found] == [JobState.CANCELLED, rest, rest, rest], (state, backwards)
            for job in found[1:]:
                ends = [entry for entry in await driver.store.events(job.id) if entry.state in TERMINAL]
                assert [(entry.state, entry.version) for entry in ends] == [(rest, job.version)]

    @case
    async def test_a_job_that_cannot_be_published_ends_its_dependents(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        asked = await driver.dispatch_new(queue="asked")
        jobs = [await driver.submit(detail=after(one)) for one in (first, asked)]
        await driver.request_cancel(await driver.read(asked))

        await driver.fail(first, reason="too large")
        await driver.undispatch(asked)
        await driver.release()

        assert [await driver.state(job) for job in jobs] == [JobState.UPSTREAM_FAILED] * 2

    @case
    async def test_many_dependents_of_one_job_are_released_in_batches(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        jobs = await driver.submit_many(12, detail=after(first))
        await driver.expect_accepted(first, "succeeded")

        queued = 0
        rounds = 0
        while (await driver.schedulers.release_dependents(limit=5)).is_more:
            now = await driver.store.count_jobs(_queued_filter(jobs[0].queue))
            assert queued < now <= queued + 5
            queued, rounds = now, rounds + 1

        assert rounds == 2
        assert {await driver.state(job) for job in jobs} == {JobState.QUEUED}
        assert await driver.schedulers.release_dependents() == Released()

    @case
    async def test_one_job_can_wait_for_many(self) -> None:
        driver = self.driver()
        first = [await driver.new(queue="first") for _ in range(1_000)]
        await driver.store.submit(first)
        job = await driver.submit(detail=after(*first))
        batch = await driver.dispatch(queue="first")

        for start in range(0, 999, 333):
            await driver.schedulers.apply([report(one, "succeeded") for one in batch.jobs[start : start + 333]])
            await driver.release()
        assert await driver.store.unmet(job.id, limit=2) == [JobDependency(batch.jobs[-1].id)]
        assert await driver.state(job) is JobState.WAITING
        await driver.expect_accepted(batch.jobs[-1], "succeeded")
        await driver.release()

        assert await driver.state(job) is JobState.QUEUED

    @case
    async def test_the_first_unmet_dependency_decides_how_the_job_ends(self) -> None:
        driver = self.driver()
        first, second = await driver.dispatch_new(queue="a"), await driver.dispatch_new(queue="b")
        both = (JobDependency(first.id, "failed"), JobDependency(second.id))
        job = await driver.submit(detail=JobDetail(depends_on=both))

        await driver.expect_accepted(first, "succeeded")
        await driver.expect_accepted(second, "failed")
        await driver.release()

        assert await driver.state(job) is JobState.SKIPPED


def _queued_filter(queue: str) -> JobFilter:
    return JobFilter(queues=(queue,), states=frozenset({JobState.QUEUED}))


async def _end(driver: JobDriver, job_id: str, state: JobState) -> None:
    """End a held job in this state."""
    record = await driver.read(job_id)
    if state in (JobState.SUCCEEDED, JobState.FAILED):
        await driver.expect_update(record, JobState.QUEUED)
        (job,) = (await driver.dispatch(queue=record.queue)).jobs
        await driver.expect_accepted(job, "succeeded" if state is JobState.SUCCEEDED else "failed")
        return
    await driver.expect_update(record, state)


async def _cancel(driver: JobDriver, job: JobRecord) -> None:
    """Cancel the job, as an operator and its worker do; no effect if it has ended."""
    if job.state in CHANGEABLE:
        await driver.expect_update(job, JobState.CANCELLED, kind="cancel")
    elif job.state in UNDERWAY:
        asked = await driver.request_cancel(job)
        end = Report(id=asked.id, token=asked.token, attempt=asked.attempt, worker="w1", kind="cancelled")
        await driver.schedulers.apply([end])
