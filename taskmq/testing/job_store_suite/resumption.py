"""Tests of resumed jobs: same id, next attempt, and earlier reports have no effect."""

import asyncio
from typing import Any

from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobRecord, JobUpdate
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import RESUMABLE, TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, LONG, JobDriver, after, error, ids, new_id, report
from taskmq.testing.runner import case

_MANY = 20
_LARGE = b'{"task":"send_mail","args":["' + b"x" * 5_000 + b'"]}'


class Resumptions(JobStoreCase):
    """Every guarantee of an `update` that resumes a job."""

    @case
    async def test_a_dispatch_that_was_taken_back_is_no_attempt(self) -> None:
        driver = self.driver()
        for delay in (0.0, LONG):
            job = await driver.dispatch_new()
            await driver.undispatch(job, delay=delay)
            assert (await driver.read(job)).dispatched is None
            cancelled = await driver.expect_update(await driver.read(job), JobState.CANCELLED, kind="cancel")

            live = await _resume(driver, cancelled, due=await driver.store.now_ms())

            assert live.attempt == 1
            assert await driver.store.attempts(job.id) == []
            await driver.expect_update(live, JobState.CANCELLED, kind="cancel")

    @case
    async def test_a_failed_job_resumes_with_its_next_attempt(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new(key="k", expires=HOUR)
        failed = await driver.expect_accepted(
            job, "failed", started=5_000, ran=70, processor=60, peak_memory=1 << 33, error=error("no")
        )
        assert (failed.processor_ms, failed.peak_memory) == (60, 1 << 33)
        now = await driver.store.now_ms()

        live = await _resume(driver, failed, due=now, body=_LARGE, by="ann", note="☂")

        assert live == await other.read(job)
        assert (live.id, live.key, live.state, live.version) == (job.id, "k", JobState.QUEUED, failed.version + 1)
        assert (live.attempt, live.token, live.due, live.scheduled_for) == (2, job.token, now, failed.due)
        assert (live.expires, live.finished, live.error, live.body) == (None, None, failed.error, _LARGE)
        assert await other.store.attempts(job.id) == [
            AttemptRecord(
                attempt=1,
                started=5_000,
                ended=5_070,
                worker="w1",
                error=failed.error,
                processor_ms=60,
                peak_memory=1 << 33,
            )
        ]
        (entry,) = await other.store.events(job.id)
        assert entry == HistoryEntry(
            version=live.version, at=entry.at, kind="retry", state=JobState.QUEUED, by="ann", note="☂"
        )
        assert await other.store.find_key("", "k") == job.id
        page = await other.store.list_jobs(JobFilter(ids=(job.id,)))
        assert ids(page.jobs) == [job.id]
        (again,) = (await driver.dispatch()).jobs
        assert (again.id, again.attempt, again.body, again.token >> 32) == (job.id, 2, _LARGE, (job.token >> 32) + 1)
        ended = await driver.expect_accepted(again, "succeeded", result=b"1")
        assert (ended.result, ended.retried_as, ended.attempt) == (b"1", "", 2)
        assert await other.read(job) == ended

    @case
    async def test_a_job_resumes_from_any_unsuccessful_end_and_no_other_state(self) -> None:
        driver = self.driver()

        for state in sorted(TERMINAL):
            ended = await driver.make(state)
            answer = await driver.store.update(_update(ended, due=await driver.store.now_ms()))
            if state not in RESUMABLE:
                assert answer is None
                assert await driver.read(ended) == ended
                continue
            assert answer is not None
            assert answer == await driver.read(ended), state
            has_run = state is JobState.FAILED
            assert (answer.state, answer.attempt) == (JobState.QUEUED, 1 + has_run), state
            assert (answer.error is None, answer.cancel_requested) == (not has_run, None), state
            (one,) = (await driver.dispatch(queue=ended.queue)).jobs
            assert one.id == ended.id

    @case
    async def test_late_reports_of_an_earlier_dispatch_change_nothing(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        failed = await driver.expect_accepted(job, "failed", error=error("no"))
        live = await _resume(driver, failed)

        for kind in ("started", "succeeded", "failed", "retry", "snoozed"):
            assert (await driver.report(job, kind)).outcome == "superseded"
        assert await driver.read(job) == live
        (again,) = (await driver.dispatch()).jobs
        (applied,) = await driver.schedulers.apply([report(job, "succeeded", result=b"old")])
        assert applied.outcome == "superseded"
        assert (await driver.expect_accepted(again, "succeeded", result=b"new")).result == b"new"

    @case
    async def test_only_one_of_many_concurrent_resumptions_of_a_job_applies(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        failed = await drivers[0].make(JobState.FAILED)

        answers = await asyncio.gather(
            *(drivers[number % 2].store.update(_update(failed)) for number in range(_MANY))
        )

        (live,) = [answer for answer in answers if answer is not None]
        assert await drivers[1].read(failed) == live
        assert len(await drivers[0].store.events(failed.id)) == 1
        assert len((await drivers[0].dispatch(queue=failed.queue)).jobs) == 1

    @case
    async def test_a_job_resumes_only_if_it_is_unchanged(self) -> None:
        driver = self.driver()
        failed = await driver.make(JobState.FAILED)
        stale = [
            _update(failed, version=failed.version + 1),
            _update(failed, before=JobState.EXPIRED),
            _update(failed, kind="change"),
            *[_update(failed, after=state) for state in JobState if state is not JobState.QUEUED],
            _update(failed, depends_on=(JobDependency(new_id(await driver.store.now_ms())),)),
            *[_update(failed, id=one) for one in (new_id(await driver.store.now_ms()), "", "no-uuid", "a\0b")],
        ]

        for update in stale:
            assert await driver.store.update(update) is None, update

        assert await driver.read(failed) == failed
        assert await driver.store.attempts(failed.id) == []

    @case
    async def test_a_resumed_job_waits_for_dependencies_that_run_again(self) -> None:
        driver = self.driver()
        first = await driver.submit(queue="first")
        second = await driver.submit(queue="second", detail=after(first))
        await driver.expect_accepted((await driver.dispatch(queue="first")).jobs[0], "failed", error=error("no"))
        await driver.release()
        assert (await driver.state(second)) is JobState.UPSTREAM_FAILED

        await _resume(driver, await driver.read(first))
        depends_on = (JobDependency(first.id),)
        waiting = await _resume(driver, await driver.read(second), depends_on=depends_on)

        assert (waiting.state, waiting.attempt) == (JobState.WAITING, 1)
        assert await driver.store.unmet(second.id) == [JobDependency(first.id)]
        applied = await driver.report((await driver.dispatch(queue="first")).jobs[0], "succeeded")
        assert applied.has_dependents
        assert await driver.release() == {"second"}
        assert ids((await driver.dispatch(queue="second")).jobs) == [second.id]

    @case
    async def test_a_run_counts_as_one_attempt_however_often_its_job_resumes(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new(queue="second")
        failed = await driver.expect_accepted(job, "failed", started=5_000, ran=70, error=error("no"))
        kept: list[AttemptRecord] | None = None

        for _ in range(3):
            first = await driver.dispatch_new(queue="first")
            live = await _resume(driver, failed, depends_on=(JobDependency(first.id),))
            assert (live.state, live.attempt, live.dispatched) == (JobState.WAITING, 2, None)
            attempts = await other.store.attempts(job.id)
            assert attempts == (kept or attempts)
            assert [one.attempt for one in attempts] == [1]
            kept = attempts
            await driver.expect_accepted(first, "failed", error=error("no"))
            await driver.release()
            failed = await driver.read(job)
            assert (failed.state, failed.attempt) == (JobState.UPSTREAM_FAILED, 2)

    @case
    async def test_a_retry_that_never_ran_is_no_attempt_of_a_resumed_job(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        waiting = await driver.expect_accepted(job, "retry", started=5_000, ran=70, delay=HOUR, error=error("no"))
        cancelled = await driver.store.update(_update(waiting, kind="cancel", after=JobState.CANCELLED))
        assert cancelled is not None

        live = await _resume(driver, cancelled)

        assert (waiting.dispatched, live.attempt) == (None, 2)
        assert [one.attempt for one in await other.store.attempts(job.id)] == [1]

    @case
    async def test_a_resumed_job_does_not_wait_for_succeeded_dependencies(self) -> None:
        driver = self.driver()
        first = await driver.make(JobState.SUCCEEDED)
        failed = await driver.make(JobState.FAILED)

        live = await _resume(driver, failed, depends_on=(JobDependency(first.id),))

        assert live.state is JobState.QUEUED

    @case
    async def test_a_repeated_job_can_itself_resume_and_is_open_again(self) -> None:
        driver = self.driver()
        failed = await driver.make(JobState.FAILED)
        copy = await driver.new(queue=failed.queue)
        await driver.store.retry(copy, _update(failed, after=JobState.FAILED))
        retried = await driver.read(failed)

        live = await _resume(driver, retried)

        assert (retried.retried_as, live.retried_as) == (copy.id, "")


def _update(ended: JobRecord, **fields: Any) -> JobUpdate:
    given: dict[str, Any] = {"id": ended.id, "before": ended.state, "version": ended.version, "kind": "retry"}
    given |= {"after": JobState.QUEUED} | fields
    return JobUpdate(**given)


async def _resume(driver: JobDriver, ended: JobRecord, **fields: Any) -> JobRecord:
    """Resume an ended job and return it."""
    live = await driver.store.update(_update(ended, **fields))
    assert live is not None
    return live
