"""Tests of interrupted runs and of their entries in the job history."""

from typing import Any, Final

from taskmq.contracts.jobs import DispatchedJob, JobRecord
from taskmq.model.jobs.reports import INTERRUPTED, PREEMPTED
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, JobDriver, error, report
from taskmq.testing.runner import case

_STOPPED: Final = ErrorRecord(type_name=INTERRUPTED, message="its worker stopped ☂")
_OUTAGE: Final = ErrorRecord(type_name=INTERRUPTED, message="outage: StateUnavailable: no answer")


class Interruptions(JobStoreCase):
    """Guarantees for jobs whose run was interrupted by a drain, an outage or a lost worker.

    class TestMine(Interruptions): ...
    """

    @case
    async def test_a_run_returned_by_its_worker_is_an_event_not_an_error(self) -> None:
        driver = self.driver()
        job, begun = await _running(driver)

        record = await driver.expect_accepted(job, "interrupted", worker="w1", started=begun, error=_STOPPED)

        assert (record.state, record.attempt, record.error, record.worker) == (JobState.QUEUED, 1, None, "w1")
        assert await _events(driver, record) == [("interrupted", JobState.QUEUED, "w1", "its worker stopped ☂")]
        assert [event.started for event in await driver.store.events(job.id)] == [begun]
        assert await driver.store.attempts(job.id) == []

    @case
    async def test_a_run_interrupted_by_an_outage_waits_and_counts_for_its_attempt(self) -> None:
        driver = self.driver()
        job, begun = await _running(driver)
        assert job.outages == 0
        for count in (1, 2):
            record = await driver.expect_accepted(job, "snoozed", delay=HOUR, started=begun, error=_OUTAGE)
            assert (record.state, record.attempt, record.error) == (JobState.SCHEDULED, 1, None)
            assert record.due >= await driver.store.now_ms() + HOUR // 2
            job = await driver.again(job)
            assert (job.outages, job.attempt) == (count, 1)
        # Neither report is an outage.
        await driver.expect_accepted(job, "snoozed", delay=1, started=begun)
        job = await driver.again(job)
        await driver.expect_accepted(job, "interrupted", started=begun, error=_STOPPED)
        job = await driver.again(job)
        assert job.outages == 2

        await driver.expect_accepted(job, "retry", started=begun, error=error("no"))

        job = await driver.again(job)
        assert (job.outages, job.attempt) == (0, 2)
        assert len(await _events(driver, await driver.read(job))) == 3

    @case
    async def test_a_take_over_returns_the_outages_and_the_first_run(self) -> None:
        driver = self.driver()
        job, begun = await _running(driver)
        await driver.expect_accepted(job, "snoozed", delay=HOUR, started=begun, error=_OUTAGE)
        sent, fresh = await driver.again(job), await driver.dispatch_new(queue="fresh")

        taken: dict[str, DispatchedJob] = {}
        for queue in (sent.queue, fresh.queue):
            partition = driver.schedulers.partition_of(queue)
            for batch in await driver.schedulers.take_over(partition, await driver.next_epoch(partition)):
                taken |= {one.id: one for one in batch.jobs}

        assert (taken[sent.id].outages, taken[sent.id].due) == (1, None)
        assert (taken[fresh.id].outages, taken[fresh.id].due) == (0, fresh.due)

    @case
    async def test_a_job_keeps_its_first_start_time_through_interruptions(self) -> None:
        driver = self.driver()
        job, begun = await _running(driver)
        ways: tuple[tuple[Any, dict[str, Any]], ...] = (
            ("interrupted", {"error": _STOPPED}),
            ("snoozed", {"delay": HOUR, "error": _OUTAGE}),
            ("retry", {"error": error("no")}),
            ("interrupted", {"error": ErrorRecord(type_name=PREEMPTED, message="preempted by pool acme")}),
        )
        for number, (kind, fields) in enumerate(ways):
            record = await driver.expect_accepted(job, kind, started=begun + number * 1_000, **fields)
            assert (record.first_started, record.started) == (begun, begun + number * 1_000), kind
            job = await driver.again(job)
            assert job.due is None
            assert (await driver.read(job)).started is None

        record = await driver.expect_accepted(job, "succeeded", started=begun + 60_000)

        assert (record.first_started, record.started) == (begun, begun + 60_000)

    @case
    async def test_the_first_start_is_correct_for_jobs_that_never_ran_or_ended_at_once(self) -> None:
        driver = self.driver()
        short, turned_back = await driver.dispatch_new(), await driver.dispatch_new(queue="limited")

        record = await driver.expect_accepted(short, "succeeded", started=1_000, ran=5)
        waiting = await driver.expect_accepted(turned_back, "snoozed", delay=1, limited=True)

        assert (record.first_started, record.started) == (1_000, 1_000)
        assert waiting.first_started is None
        again = await driver.again(turned_back)
        assert again.due == (await driver.read(again)).due

    @case
    async def test_a_second_start_in_one_dispatch_records_the_first_run_as_lost(self) -> None:
        driver = self.driver()
        for kind, state in (("started", JobState.RUNNING), ("retry", JobState.RETRYING), ("failed", JobState.FAILED)):
            job, begun = await _running(driver, queue=f"restarted {kind}")

            record = await driver.expect_accepted(job, kind, worker="w2", started=begun + 1)  # type: ignore[arg-type]

            assert (record.state, record.first_started, record.started) == (state, begun, begun + 1)
            note = "no end of this run was reported; the job ran again at w2"
            assert await _events(driver, record) == [("interrupted", state, "w1", note)]
            assert [event.started for event in await driver.store.events(job.id)] == [begun]

    @case
    async def test_reports_of_one_run_are_not_a_restart(self) -> None:
        driver = self.driver()
        job, begun = await _running(driver)

        await driver.expect_accepted(job, "started", worker="w1", started=begun)
        # The report comes from another run with a slow clock, so its times are uncertain.
        await driver.expect_accepted(job, "started", worker="w2", started=begun - 1)
        record = await driver.expect_accepted(job, "succeeded", worker="w1", started=begun - 1)

        assert await _events(driver, record) == []

    @case
    async def test_restarts_in_one_call_name_each_lost_run(self) -> None:
        driver = self.driver()
        jobs = [await _running(driver, queue=f"many {number}", worker=f"w{number}") for number in range(3)]
        reports = [report(job, "succeeded", worker="new", started=begun + 1) for job, begun in jobs]

        await driver.schedulers.apply(reports)

        for number, (job, _) in enumerate(jobs):
            ((kind, state, by, _),) = await _events(driver, await driver.read(job))
            assert (kind, state, by) == ("interrupted", JobState.SUCCEEDED, f"w{number}")

    @case
    async def test_an_interrupted_job_asked_to_end_ends_for_that_reason(self) -> None:
        driver = self.driver()
        for kind, fields in (("interrupted", {"error": _STOPPED}), ("snoozed", {"delay": HOUR, "error": _OUTAGE})):
            job, begun = await _running(driver, queue=f"cancelled {kind}")
            await driver.request_cancel(await driver.read(job), "not wanted")

            record = await driver.expect_accepted(job, kind, started=begun, **fields)  # type: ignore[arg-type]

            assert record.state is JobState.CANCELLED
            assert record.error == ErrorRecord(type_name="", message="not wanted")


async def _running(driver: JobDriver, *, worker: str = "w1", **fields: Any) -> tuple[DispatchedJob, int]:
    """Return a running job and its start time."""
    job = await driver.dispatch_new(**fields)
    begun = await driver.store.now_ms()
    await driver.expect_accepted(job, "started", worker=worker, started=begun)
    return job, begun


async def _events(driver: JobDriver, job: JobRecord) -> list[tuple[str, JobState, str, str]]:
    """Return the interruptions in the job's history."""
    return [
        (event.kind, event.state, event.by, event.note)
        for event in await driver.store.events(job.id)
        if event.kind == "interrupted"
    ]
