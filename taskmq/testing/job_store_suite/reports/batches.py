"""Tests of several reports in one call."""

from taskmq.contracts.jobs import AppliedReport, DispatchBatch
from taskmq.model.jobs.reports import ReportKind, after_report, goes_on
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import (
    HOUR,
    QUEUE,
    REPORT_KINDS,
    JobDriver,
    error,
    forged_token,
    report,
    without_event_fields,
)
from taskmq.testing.runner import case

_MANY = 500


class ReportBatches(JobStoreCase):
    """Every guarantee of `apply` about several reports in one call."""

    @case
    async def test_several_reports_on_one_job_in_one_call_apply_in_order(self) -> None:
        driver = self.driver()
        sequences: list[tuple[list[ReportKind], list[str], JobState]] = [
            (["started", "succeeded"], ["accepted", "accepted"], JobState.SUCCEEDED),
            (["succeeded", "started"], ["accepted", "superseded"], JobState.SUCCEEDED),
            (["succeeded", "failed"], ["accepted", "superseded"], JobState.SUCCEEDED),
            (["failed", "succeeded", "started"], ["accepted", "superseded", "superseded"], JobState.FAILED),
            (["started", "retry", "succeeded"], ["accepted", "accepted", "superseded"], JobState.RETRYING),
            (["retry", "retry"], ["accepted", "superseded"], JobState.RETRYING),
            (["started", "started", "snoozed"], ["accepted", "accepted", "accepted"], JobState.SCHEDULED),
            (["interrupted", "expired"], ["accepted", "superseded"], JobState.QUEUED),
        ]
        jobs = (await _batch(driver, len(sequences))).jobs
        reports = [
            report(job, kinds[turn], delay=HOUR, result=b"1" if kinds[turn] == "succeeded" else b"")
            # Scatter the reports of each job.
            for turn in range(3)
            for job, (kinds, _, _) in zip(jobs, sequences, strict=True)
            if turn < len(kinds)
        ]

        applied = await driver.schedulers.apply(reports)

        for job, (kinds, outcomes, state) in zip(jobs, sequences, strict=True):
            found = [each.outcome for each, sent in zip(applied, reports, strict=True) if sent.id == job.id]
            record = await driver.read(job)
            assert found == outcomes, kinds
            assert record.state is state, kinds
            assert record.attempt == 1 + (state is JobState.RETRYING)
            assert len(await driver.store.attempts(job.id)) == (state is JobState.RETRYING)

    @case
    async def test_each_report_in_one_call_returns_its_resulting_state(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()

        applied = await driver.schedulers.apply([report(job, "started"), report(job, "succeeded")])

        assert [each.outcome for each in applied] == ["accepted", "accepted"]
        assert applied[-1].state is JobState.SUCCEEDED

    @case
    async def test_one_superseded_report_does_not_affect_the_others(self) -> None:
        driver = self.driver()
        jobs = (await _batch(driver, 4)).jobs
        reports = [
            report(jobs[0], "succeeded"),
            report(jobs[1], "succeeded", token=forged_token(jobs[1].token)),
            report(jobs[2], "failed", id="no-uuid"),
            report(jobs[3], "retry", delay=HOUR),
        ]

        applied = await driver.schedulers.apply(reports)

        assert [each.outcome for each in applied] == ["accepted", "invented", "unknown", "accepted"]
        assert [await driver.state(job) for job in jobs] == [
            JobState.SUCCEEDED,
            JobState.DISPATCHED,
            JobState.DISPATCHED,
            JobState.RETRYING,
        ]

    @case
    async def test_many_reports_of_all_kinds_apply_in_one_call(self) -> None:
        driver = self.driver()
        jobs = (await _batch(driver, _MANY)).jobs
        kinds: list[ReportKind] = [REPORT_KINDS[number % len(REPORT_KINDS)] for number in range(_MANY)]

        applied = await driver.schedulers.apply(
            [report(job, kind, delay=HOUR, error=error("no")) for job, kind in zip(jobs, kinds, strict=True)][::-1]
        )

        expected = [AppliedReport("accepted", after_report(kind, cancel_requested=False), QUEUE) for kind in kinds]
        assert applied == expected[::-1]
        for kind in REPORT_KINDS:
            state = after_report(kind, cancel_requested=False)
            assert await driver.state(jobs[kinds.index(kind)]) is state, kind
        assert await driver.store.count_jobs() == _MANY

    @case
    async def test_reporting_nothing_succeeds(self) -> None:
        assert await self.driver().schedulers.apply([]) == []

    @case
    async def test_a_duplicate_message_of_reports_changes_nothing(self) -> None:
        driver, other = self.driver(), self.driver()
        jobs = (await _batch(driver, len(REPORT_KINDS))).jobs
        reports = [report(job, kind, delay=HOUR) for job, kind in zip(jobs, REPORT_KINDS, strict=True)]
        await driver.schedulers.apply(reports)
        before = [await driver.read(job) for job in jobs]

        applied = await other.schedulers.apply(reports)

        after = [await driver.read(job) for job in jobs]
        assert [each.outcome for each in applied] == [
            "accepted" if goes_on(kind) else "superseded" for kind in REPORT_KINDS
        ]
        assert [without_event_fields(record) for record in after] == [
            without_event_fields(record) for record in before
        ]


async def _batch(driver: JobDriver, count: int) -> DispatchBatch:
    await driver.submit_many(count)
    batch = await driver.dispatch()
    assert len(batch.jobs) == count
    return batch
