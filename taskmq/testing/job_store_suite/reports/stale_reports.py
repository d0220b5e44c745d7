"""Tests of reports that do not count: on other dispatches, ended jobs and unknown ones."""

from collections.abc import Sequence

from taskmq.contracts.jobs import AppliedReport
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import (
    END_KINDS,
    HOUR,
    QUEUE,
    REPORT_KINDS,
    new_id,
    report,
    without_event_fields,
)
from taskmq.testing.runner import case

_AGAIN: Sequence[ReportKind] = ("retry", "snoozed", "interrupted")


class StaleReports(JobStoreCase):
    """Every guarantee of `apply` about reports that do not count."""

    @case
    async def test_a_report_with_another_token_is_superseded(self) -> None:
        driver = self.driver()
        old = await driver.dispatch_new()
        await driver.expect_accepted(old, "interrupted")
        job = await driver.again(old)
        record = await driver.read(job)

        for kind in REPORT_KINDS:
            for token in (old.token, 0):
                applied = await driver.report(job, kind, token=token)
                assert applied == AppliedReport("superseded", JobState.DISPATCHED, QUEUE), kind

        assert without_event_fields(await driver.read(job)) == without_event_fields(record)
        assert await driver.store.attempts(job.id) == []
        assert (await driver.expect_accepted(job, "succeeded")).state is JobState.SUCCEEDED

    @case
    async def test_a_report_on_a_requeued_job_is_superseded_despite_its_current_token(self) -> None:
        driver = self.driver()

        for first in _AGAIN:
            job = await driver.dispatch_new(queue=first)
            record = await driver.expect_accepted(job, first, delay=HOUR)
            for kind in REPORT_KINDS:
                applied = await driver.report(job, kind)
                assert applied == AppliedReport("superseded", record.state, first), f"{first}, {kind}"
            assert without_event_fields(await driver.read(job)) == without_event_fields(record)
            assert len(await driver.store.attempts(job.id)) == (first == "retry")

    @case
    async def test_a_report_on_an_ended_job_is_superseded(self) -> None:
        driver = self.driver()

        for first in END_KINDS:
            job = await driver.dispatch_new(queue=first)
            record = await driver.expect_accepted(job, first, result=b"first" if first == "succeeded" else b"")
            for kind in REPORT_KINDS:
                applied = await driver.report(job, kind, result=b"second")
                assert applied == AppliedReport("superseded", record.state, first), f"{first}, {kind}"
            assert await driver.read(job) == record

    @case
    async def test_a_job_cancelled_in_flight_ends_once(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        ended = await driver.expect_update(await driver.read(job), JobState.CANCELLED, kind="cancel")

        applied = await driver.report(job, "succeeded", result=b"1")

        assert applied == AppliedReport("superseded", JobState.CANCELLED, QUEUE)
        assert await driver.read(job) == ended

    @case
    async def test_a_superseded_report_is_recorded_as_an_event(self) -> None:
        driver = self.driver()
        old = await driver.dispatch_new()
        await driver.expect_accepted(old, "interrupted")
        await driver.again(old)

        await driver.report(old, "succeeded", worker="w9")

        events = await driver.store.events(old.id)
        assert [(event.kind, event.state) for event in events] == [("superseded", JobState.DISPATCHED)]

    @case
    async def test_a_report_on_an_unknown_job_is_unknown(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        unknown = [new_id(await driver.store.now_ms()), "", "no-uuid", "x" * 500, "a\0b", "\ud800", "ö"]

        for kind in REPORT_KINDS:
            applied = await driver.schedulers.apply([report(job, kind, id=job_id) for job_id in unknown])
            assert applied == [AppliedReport("unknown")] * len(unknown)

        assert await driver.state(job) is JobState.DISPATCHED
