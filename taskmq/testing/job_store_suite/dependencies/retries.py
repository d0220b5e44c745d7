"""Tests of retries of jobs whose end ended others."""

import asyncio
from typing import Any

from taskmq.contracts.identity import AuditFilter
from taskmq.contracts.jobs import HistoryEntry, JobDetail, JobRecord, JobUpdate, Submitted
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditEntry
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, after
from taskmq.testing.runner import case


class DependencyRetries(JobStoreCase):
    """Checks that retries reattach the dependents that an end has ended, as `JobStore.update` promises."""

    @case
    async def test_dependents_of_a_resumed_job_wait_for_its_next_run(self) -> None:
        driver, other = self.driver(), self.driver()
        first, job = await _fail_with_dependent(driver)

        live = await _resume(driver, first, by="ann", note="fixed")

        again = await other.read(job)
        assert live.reattached == 1
        assert (again.state, again.version, again.error) == (JobState.WAITING, 3, None)
        assert await other.store.unmet(job.id) == [JobDependency(first.id)]
        note = f"fixed; job {first.id} runs again"
        entry = (await other.store.events(job.id))[-1]
        assert entry == HistoryEntry(
            version=3, at=entry.at, kind="retry", state=JobState.WAITING, by="ann", note=note
        )
        await driver.expect_accepted(await driver.again(live), "succeeded")
        assert await driver.release() == {job.queue}
        assert [one.id for one in (await driver.dispatch()).jobs] == [job.id]

    @case
    async def test_dependents_of_a_job_retried_as_new_wait_for_the_new_job(self) -> None:
        driver, other = self.driver(), self.driver()
        first, job = await _fail_with_dependent(driver)

        answer = await _repeat(driver, first)

        assert answer.reattached == 1
        assert await other.store.unmet(job.id) == [JobDependency(answer.id)]
        await driver.expect_accepted(await driver.again(await driver.read(answer.id)), "succeeded")
        await driver.release()
        assert await driver.state(job) is JobState.QUEUED
        assert (await _repeat(driver, await driver.read(first))).reattached == 0

    @case
    async def test_a_reattached_job_ends_again_with_its_upstream_job(self) -> None:
        driver = self.driver()
        first, job = await _fail_with_dependent(driver)

        for _ in range(3):
            answer = await _repeat(driver, first)
            assert answer.reattached == 1
            await driver.expect_accepted(await driver.again(await driver.read(answer.id)), "failed")
            await driver.release()
            assert await driver.state(job) is JobState.UPSTREAM_FAILED
            first = await driver.read(answer.id)

    @case
    async def test_dependents_of_dependents_are_reattached_in_one_retry(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        chain = [await driver.submit(detail=after(first))]
        for _ in range(3):
            chain.append(await driver.submit(detail=after(chain[-1])))
        last = await driver.submit(detail=after(*chain))
        await driver.expect_accepted(first, "failed")
        await driver.release()

        answer = await _repeat(driver, await driver.read(first))

        assert answer.reattached == len(chain) + 1
        assert {await driver.state(job) for job in (*chain, last)} == {JobState.WAITING}
        await driver.expect_accepted(await driver.again(await driver.read(answer.id)), "succeeded")
        for job in (*chain, last):
            await driver.release()
            await driver.expect_accepted(await driver.again(job), "succeeded")

    @case
    async def test_a_reattached_job_does_not_wait_for_an_end_that_it_already_has(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        other = await driver.submit(detail=after(first))
        upstream = (JobDependency(first.id), JobDependency(other.id, "ended"))
        job = await driver.submit(detail=JobDetail(depends_on=upstream))
        await driver.expect_accepted(first, "failed")
        await driver.release()

        answer = await _repeat(driver, await driver.read(first))

        assert answer.reattached == 2
        assert await driver.store.unmet(job.id) == [JobDependency(answer.id)]
        assert await driver.store.unmet(other.id) == [JobDependency(answer.id)]

    @case
    async def test_a_job_with_two_failed_dependencies_waits_once_both_are_retried(self) -> None:
        driver, other = self.driver(), self.driver()
        first = [await driver.dispatch_new(queue=f"first {number}") for number in range(2)]
        job = await driver.submit(detail=after(*first))
        for one in first:
            await driver.expect_accepted(one, "failed")
        await driver.release()

        ended = [await driver.read(one) for one in first]
        answers = await asyncio.gather(_repeat(driver, ended[0]), _repeat(other, ended[1]))

        assert sum(answer.reattached for answer in answers) == 1
        assert [each.id for each in await driver.store.unmet(job.id)] == sorted(answer.id for answer in answers)

    @case
    async def test_a_job_with_another_live_dependency_waits_for_both(self) -> None:
        driver = self.driver()
        first, other = await driver.dispatch_new(queue="first"), await driver.dispatch_new(queue="other")
        done = await driver.dispatch_new(queue="done")
        job = await driver.submit(detail=after(first, other, done))
        await driver.expect_accepted(first, "failed")
        await driver.release()
        await driver.expect_accepted(done, "succeeded")
        await driver.release()

        live = await _resume(driver, await driver.read(first))

        assert live.reattached == 1
        assert {each.id for each in await driver.store.unmet(job.id)} == {first.id, other.id}

    @case
    async def test_a_retry_reattaches_dependents_whose_end_is_not_recorded_yet(self) -> None:
        driver = self.driver()
        for retry in (_resume, _repeat):
            first = await driver.dispatch_new(queue=f"first {retry.__name__}")
            job = await driver.submit(detail=after(first))
            behind = await driver.submit(detail=after(job))
            anyway = await driver.submit(queue="anyway", detail=after(first, condition="ended"))
            await driver.expect_accepted(first, "failed")

            assert (await retry(driver, await driver.read(first))).reattached == 2
            await driver.release()

            assert [await driver.state(each) for each in (job, behind)] == [JobState.WAITING] * 2
            assert await driver.state(anyway) is JobState.QUEUED

    @case
    async def test_jobs_that_ended_otherwise_stay_as_they_are(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        cancelled = await driver.submit(detail=after(first))
        await driver.expect_update(cancelled, JobState.CANCELLED, kind="cancel")
        ran = await driver.submit(queue="ran", detail=after(first, condition="failed"))
        await driver.expect_accepted(first, "failed")
        await driver.release()
        await driver.expect_accepted(await driver.again(ran), "succeeded")
        before = [await driver.read(job) for job in (cancelled, ran)]

        assert (await _resume(driver, await driver.read(first))).reattached == 0

        assert [await driver.read(job) for job in (cancelled, ran)] == before

    @case
    async def test_a_dependent_that_another_job_repeats_is_not_reattached(self) -> None:
        driver = self.driver()
        first, job = await _fail_with_dependent(driver)
        await _repeat(driver, await driver.read(job))

        assert (await _resume(driver, first)).reattached == 0
        assert await driver.state(job) is JobState.UPSTREAM_FAILED

    @case
    async def test_a_skipped_job_waits_for_the_new_run(self) -> None:
        driver = self.driver()
        first = await driver.dispatch_new(queue="first")
        job = await driver.submit(expires=HOUR, detail=after(first, condition="failed"))
        await driver.expect_accepted(first, "succeeded")
        await driver.release()
        assert await driver.state(job) is JobState.SKIPPED

        assert (await _repeat(driver, await driver.read(first))).reattached == 1
        assert (await driver.read(job)).expires == job.expires

    @case
    async def test_the_audit_entry_of_a_retry_counts_the_reattached_jobs(self) -> None:
        driver = self.driver()
        first, _ = await _fail_with_dependent(driver)
        entry = AuditEntry(
            action="job.retry", kind="job", subject=first.id, user="ann", via="cli", after={"mode": "x"}
        )

        await _resume(driver, first, audit=entry)

        page = await driver.store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="job."), limit=9)
        (found,) = page.entries
        assert b'"reattached":1' in (found.what or b"")
        assert b'"mode":"x"' in (found.what or b"")


async def _fail_with_dependent(driver: JobDriver) -> tuple[JobRecord, JobRecord]:
    """Return a failed job, and one that ended because of it."""
    first = await driver.dispatch_new(queue="first")
    job = await driver.submit(detail=after(first))
    await driver.expect_accepted(first, "failed")
    await driver.release()
    assert await driver.state(job) is JobState.UPSTREAM_FAILED
    return await driver.read(first), job


async def _resume(driver: JobDriver, ended: JobRecord, **fields: Any) -> JobRecord:
    update = _update(ended, after=JobState.QUEUED, due=await driver.store.now_ms(), **fields)
    live = await driver.store.update(update)
    assert live is not None
    return live


async def _repeat(driver: JobDriver, ended: JobRecord) -> Submitted:
    job = await driver.new(queue=ended.queue, detail=JobDetail(retry_of=ended.id))
    answer = await driver.store.retry(job, _update(ended))
    assert answer is not None
    return answer


def _update(ended: JobRecord, **fields: Any) -> JobUpdate:
    given: dict[str, Any] = {"id": ended.id, "before": ended.state, "after": ended.state, "version": ended.version}
    given |= {"kind": "retry"} | fields
    return JobUpdate(**given)
