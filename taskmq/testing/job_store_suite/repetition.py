"""Tests of repeating ended jobs: each observed end is repeated by at most one new job."""

import asyncio
from typing import Any

from taskmq.contracts.identity import AuditFilter
from taskmq.contracts.jobs import DispatchedJob, HistoryEntry, JobDetail, JobRecord, JobUpdate, NewJob, Submitted
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditEntry
from taskmq.model.jobs.filters import UNSUCCESSFUL, JobFilter
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, error, new_id
from taskmq.testing.runner import case

_MANY = 20


class Repetitions(JobStoreCase):
    """Every guarantee of `retry`, and of the original due time of a job."""

    @case
    async def test_a_retried_job_names_its_repetition(self) -> None:
        driver, other = self.driver(), self.driver()

        for state in sorted(TERMINAL):
            ended = await driver.make(state)
            job = await _again(driver, ended)
            answer = await driver.store.retry(job, _update(ended, by="ann", note="☂"))
            assert answer == Submitted(job.id, True, True, JobState.QUEUED, 1), state
            now = await other.read(ended)
            assert (now.retried_as, now.version, now.state) == (job.id, ended.version + 1, state)
            assert await other.read(job.id) == await driver.read(job.id)
            (event,) = [one for one in await other.store.events(ended.id) if one.kind == "retry"]
            assert event == HistoryEntry(
                version=now.version, at=event.at, kind="retry", state=state, by="ann", note="☂"
            )

    @case
    async def test_a_retry_is_audited_with_the_job_it_created(self) -> None:
        driver = self.driver()
        failed = await driver.make(JobState.FAILED)
        entry = AuditEntry(action="job.retry", kind="job", subject=failed.id, user="ann", via="cli")

        await driver.store.retry(await _again(driver, failed), _update(failed, audit=entry))
        assert await driver.store.retry(await _again(driver, failed), _update(failed, audit=entry)) is None

        page = await driver.store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="job."), limit=9)
        assert [(one.action, one.subject) for one in page.entries] == [("job.retry", failed.id)]

    @case
    async def test_only_one_of_many_concurrent_retries_creates_a_job(self) -> None:
        drivers = [self.driver() for _ in range(2)]
        failed = await drivers[0].make(JobState.FAILED, queue="work")
        jobs = [await _again(drivers[0], failed) for _ in range(_MANY)]

        answers = await asyncio.gather(
            *(drivers[number % 2].store.retry(job, _update(failed)) for number, job in enumerate(jobs))
        )

        (made,) = [answer.id for answer in answers if answer is not None]
        assert (await drivers[0].read(failed)).retried_as == made
        page = await drivers[0].store.list_jobs(JobFilter(queues=("work",)))
        assert {one.id for one in page.jobs} == {made, failed.id}

    @case
    async def test_a_job_that_changed_is_not_repeated(self) -> None:
        driver = self.driver()
        failed = await driver.make(JobState.FAILED)
        live = await driver.make(JobState.QUEUED)
        stale = [
            _update(failed, version=failed.version + 1),
            _update(failed, version=0),
            *[_update(failed, before=state, after=state) for state in JobState if state is not JobState.FAILED],
            _update(live),
            *[_update(failed, id=one) for one in (new_id(await driver.store.now_ms()), "", "no-uuid", "a\0b")],
        ]

        for update in stale:
            job = await _again(driver, failed)
            assert await driver.store.retry(job, update) is None
            assert await driver.store.get(job.id) is None

        assert await driver.read(failed) == failed
        assert await driver.read(live) == live

    @case
    async def test_a_repetition_that_already_exists_leaves_the_job_unchanged(self) -> None:
        driver = self.driver()
        failed = await driver.make(JobState.FAILED, tenant="acme")
        first = await driver.submit(tenant="acme", key="k", fingerprint=b"1")

        for fingerprint, is_same in ((b"1", True), (b"2", False)):
            job = await _again(driver, failed, tenant="acme", key="k", fingerprint=fingerprint)
            answer = await driver.store.retry(job, _update(failed))
            assert answer == Submitted(first.id, False, is_same, first.state, first.version)

        assert await driver.read(failed) == failed

    @case
    async def test_a_repetition_over_a_quota_leaves_the_job_unchanged(self) -> None:
        driver = self.driver()
        failed = await driver.make(JobState.FAILED, tenant="acme")
        await driver.store.limit(Quotas(version=1, quotas={usage_name("acme", None): Quota(tenant="acme", a_day=0)}))

        answer = await driver.store.retry(await _again(driver, failed, tenant="acme"), _update(failed))

        assert answer is not None
        assert answer.exceeded is not None
        assert await driver.read(failed) == failed

    @case
    async def test_a_filter_by_unsuccessful_ends_excludes_retried_jobs(self) -> None:
        driver = self.driver()
        open_ends: dict[JobState, str] = {}
        retried: dict[JobState, str] = {}
        for state in sorted(TERMINAL):
            open_ends[state] = (await driver.make(state, tenant="acme", task="t")).id
            ended = await driver.make(state, tenant="acme", task="t")
            await driver.store.retry(await _again(driver, ended, queue="again"), _update(ended))
            retried[state] = ended.id

        whole = (*open_ends.values(), *retried.values())
        for fields in ({}, {"tenant": "acme"}, {"tenant": "acme", "tasks": ("t",)}, {"ids": whole}):
            for state in sorted(TERMINAL):
                which = {"states": frozenset({state}), **fields}
                both = {open_ends[state], retried[state]}
                assert await _matching_ids(driver, **which, retried="any") == both
                assert await _matching_ids(driver, **which, retried="yes") == {retried[state]}
                assert await _matching_ids(driver, **which, retried="no") == {open_ends[state]}
                expected = {open_ends[state]} if state in UNSUCCESSFUL else both
                assert await _matching_ids(driver, **which) == expected, (state, fields)
            every = {"states": TERMINAL, **fields}
            assert await _matching_ids(driver, **every) == {*open_ends.values(), retried[JobState.SUCCEEDED]}
            assert await _matching_ids(driver, **every, retried="no") == set(open_ends.values())
            assert await _matching_ids(driver, **every, retried="yes") == set(retried.values())
            assert await _matching_ids(driver, **fields, retried="yes") == set(retried.values())
            live = JobFilter(queues=("again",), retried="no")
            assert await driver.store.count_jobs(live) == len(TERMINAL)
        assert await _matching_ids(driver, tenant="acme", retried="no") == set(open_ends.values())
        assert await _matching_ids(driver, tenant="acme") == set(whole)
        assert await _matching_ids(driver, states=frozenset({JobState.QUEUED}), retried="yes") == set()

    @case
    async def test_postponing_a_job_keeps_its_original_scheduled_time(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        first = (await driver.read(job)).due

        retrying = await driver.expect_accepted(job, "retry", delay=HOUR, error=error("no"))
        snoozed = await driver.expect_accepted(await _dispatch_early(driver, retrying), "snoozed", delay=2 * HOUR)
        await driver.undispatch(await _dispatch_early(driver, snoozed), delay=60.0)
        put_off = await other.read(job)
        ended = await driver.expect_accepted(await _dispatch_early(driver, put_off), "succeeded")

        assert [one.scheduled_for for one in (retrying, snoozed, put_off, ended)] == [first] * 4
        assert first < retrying.due < snoozed.due
        assert (await other.read(job)).scheduled == first

    @case
    async def test_changing_the_time_of_a_job_changes_its_scheduled_time(self) -> None:
        driver = self.driver()
        job = await driver.submit(due=HOUR)
        now = await driver.store.now_ms()

        hurried = await driver.expect_update(job, JobState.QUEUED, due=now, kind="retry")
        assert (hurried.due, hurried.scheduled_for) == (now, job.due)
        held = await driver.expect_update(hurried, JobState.HELD, kind="hold")
        assert held.scheduled_for == job.due
        moved = await driver.expect_update(held, due=now + 2 * HOUR)
        assert (moved.scheduled, moved.scheduled_for) == (None, now + 2 * HOUR)


async def _again(driver: JobDriver, ended: JobRecord, **fields: Any) -> NewJob:
    """Return a job that repeats an ended one."""
    return await driver.new(**{"queue": ended.queue, "detail": JobDetail(retry_of=ended.id), **fields})


async def _dispatch_early(driver: JobDriver, job: JobRecord) -> DispatchedJob:
    """Dispatch a waiting job before its time."""
    await driver.expect_update(job, JobState.QUEUED, due=await driver.store.now_ms(), kind="retry")
    (found,) = (await driver.dispatch(queue=job.queue)).jobs
    return found


def _update(ended: JobRecord, **fields: Any) -> JobUpdate:
    given: dict[str, Any] = {"id": ended.id, "before": ended.state, "after": ended.state, "version": ended.version}
    given |= {"kind": "retry"} | fields
    return JobUpdate(**given)


async def _matching_ids(driver: JobDriver, **fields: Any) -> set[str]:
    """Return the ids that match the filter, after checking their count."""
    which = JobFilter(**fields)
    page = await driver.store.list_jobs(which, limit=100)
    assert await driver.store.count_jobs(which) == len(page.jobs)
    return {job.id for job in page.jobs}
