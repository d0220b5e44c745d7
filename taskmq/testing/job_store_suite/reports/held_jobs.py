"""Tests of jobs that their code holds, and of the versions of the app that were tried for them."""

from typing import Any

from taskmq.contracts.jobs import HeldJob, JobRecord
from taskmq.model.history.suspensions import MISMATCH
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import JobDriver
from taskmq.testing.runner import case


async def _hold(driver: JobDriver, version: str, **fields: Any) -> JobRecord:
    """Let a worker of that version hold a new job."""
    job = await driver.dispatch_new(**fields)
    why = ErrorRecord(type_name=MISMATCH, message="its calls differ")
    return await driver.expect_accepted(job, "held", version=version, error=why)


class HeldJobCases(JobStoreCase):
    """Every guarantee of `JournalStore.held_jobs` and `try_versions`."""

    @case
    async def test_a_job_that_its_code_holds_is_found_with_the_versions_that_were_tried(self) -> None:
        driver, other = self.driver(), self.driver()
        first = await _hold(driver, "2026.11.30-1")
        second = await _hold(driver, "☂", queue="q2")
        await _hold(driver, "", queue="q3")
        await driver.submit(queue="q4", held=True)

        await other.store.journals.try_versions(first.id, ["2", "3", "2"])

        found = await driver.store.journals.held_jobs()
        assert found == sorted(
            [HeldJob(first.id, first.queue, {"2026.11.30-1", "2", "3"}), HeldJob(second.id, "q2", {"☂"})]
        )
        assert await driver.store.journals.held_jobs(limit=1) == found[:1]
        assert await driver.store.journals.held_jobs(after=found[0].id) == found[1:]
        assert await driver.store.journals.held_jobs(after=found[1].id) == []

    @case
    async def test_a_released_job_is_not_found_until_it_is_held_again(self) -> None:
        driver = self.driver()
        held = await _hold(driver, "1")
        await driver.store.journals.try_versions(held.id, ["2"])
        await driver.expect_update(held, JobState.QUEUED, kind="release")
        assert await driver.store.journals.held_jobs() == []

        (again,) = (await driver.dispatch()).jobs
        why = ErrorRecord(type_name=MISMATCH, message="its calls differ")
        await driver.expect_accepted(again, "held", version="2" * 200, error=why)

        assert await driver.store.journals.held_jobs() == [HeldJob(held.id, held.queue, {"1", "2", "2" * 100})]

    @case
    async def test_a_held_report_that_does_not_count_tries_no_version(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        await driver.request_cancel(await driver.read(job))

        await driver.report(job, "held", version="1", error=ErrorRecord(type_name=MISMATCH, message="differs"))

        assert await driver.state(job) is JobState.CANCELLED
        assert await driver.store.journals.held_jobs() == []
