"""Tests of workers' reports that count, and of their effects."""

from collections.abc import Sequence

from taskmq.contracts.jobs import AttemptRecord, JobUpdate
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.jobs.reports import PREEMPTED, ReportKind, after_report
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import TERMINAL, JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import (
    END_KINDS,
    HOUR,
    REPORT_KINDS,
    error,
    report,
)
from taskmq.testing.runner import case

_NOT_COUNTED: Sequence[ReportKind] = ("snoozed", "refused")


class Reports(JobStoreCase):
    """Every guarantee of `apply` and `attempts`."""

    @case
    async def test_each_report_leads_to_its_state_from_running_and_dispatched_jobs(self) -> None:
        driver = self.driver()

        for kind in REPORT_KINDS:
            for is_running in (False, True):
                job = await driver.dispatch_new(queue=f"{kind} {is_running}")
                if is_running:
                    await driver.expect_accepted(job, "started")
                version = (await driver.read(job)).version
                record = await driver.expect_accepted(job, kind, delay=HOUR)
                assert record.state is after_report(kind, cancel_requested=False), kind
                assert record.version == version + 1, kind
                assert (record.finished is not None) is (record.state in TERMINAL), kind

    @case
    async def test_a_success_stores_its_result_and_the_times_of_the_worker(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        begun = await driver.store.now_ms() - 60_000

        record = await driver.expect_accepted(
            job,
            "succeeded",
            worker="w ☂",
            started=begun,
            ran=1_234,
            content_type="application/json",
            result=b'{"a":"\xe2\x98\x82"}',
        )

        assert await other.read(job) == record
        assert (record.state, record.worker, record.attempt) == (JobState.SUCCEEDED, "w ☂", 1)
        assert (record.started, record.finished) == (begun, begun + 1_234)
        assert (record.content_type, record.result) == ("application/json", b'{"a":"\xe2\x98\x82"}')
        assert record.error is None

    @case
    async def test_an_end_without_a_start_gets_the_time_of_its_report(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        before = await driver.store.now_ms()

        record = await driver.expect_accepted(job, "expired", error=error("too late", ""))

        assert record.finished is not None
        assert before <= record.finished <= await driver.store.now_ms()
        assert record.started is None

    @case
    async def test_ends_store_their_error_or_reason(self) -> None:
        driver = self.driver()

        for kind in END_KINDS[1:]:
            for given in (error("größe ☂"), None):
                record = await driver.expect_accepted(await driver.dispatch_new(), kind, error=given)
                assert record.error == given, kind
                assert record.result == b""

    @case
    async def test_a_start_is_stored_with_its_worker(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        begun = await driver.store.now_ms() - 1_000

        record = await driver.expect_accepted(job, "started", worker="w7", started=begun)

        assert (record.state, record.worker, record.started) == (JobState.RUNNING, "w7", begun)
        assert (record.token, record.attempt, record.finished) == (job.token, 1, None)

    @case
    async def test_a_suspended_job_runs_again_at_its_instant_in_the_same_attempt(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        asked = (await driver.read(job)).scheduled_for
        until = await driver.store.now_ms() + HOUR
        why = ErrorRecord(type_name=SUSPENDED, message="asleep")

        record = await driver.expect_accepted(job, "snoozed", started=asked, delay=1, until=until, error=why)

        assert (record.state, record.due, record.attempt) == (JobState.SCHEDULED, until, 1)
        assert (record.suspension, record.failure, record.scheduled_for) == ("asleep", None, asked)
        assert await other.read(job) == record
        assert await other.store.attempts(job.id) == []
        assert await other.store.events(job.id) == []

    @case
    async def test_a_second_start_counts_and_names_the_new_worker(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        begun = await driver.store.now_ms()
        await driver.expect_accepted(job, "started", worker="w1", started=begun - 5_000)

        record = await driver.expect_accepted(job, "started", worker="w2", started=begun)

        assert (record.state, record.worker, record.started) == (JobState.RUNNING, "w2", begun)

    @case
    async def test_the_store_records_that_a_job_runs_without_its_message(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        begun = await driver.store.now_ms() - 1_000
        await driver.expect_accepted(job, "started", worker="w7", started=begun)

        record = await driver.expect_accepted(job, "detached", worker="w7", started=begun)

        assert (record.state, record.worker, record.started) == (JobState.RUNNING, "w7", begun)
        assert (record.token, record.attempt, record.finished) == (job.token, 1, None)
        (event,) = await other.store.events(job.id)
        assert (event.kind, event.state, event.by) == ("detached", JobState.RUNNING, "w7")
        # The next holder of the partition identifies the dispatch by it.
        assert record.dispatched is not None
        assert event.at >= record.dispatched
        assert (await driver.expect_accepted(job, "succeeded", started=begun)).state is JobState.SUCCEEDED

    @case
    async def test_a_run_that_yields_waits_again_and_records_why(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        begun = await driver.store.now_ms() - 1_000
        running = await driver.expect_accepted(job, "started", worker="w7", started=begun)
        asked = JobUpdate(
            id=job.id,
            before=JobState.RUNNING,
            version=running.version,
            after=JobState.RUNNING,
            kind="preempt_requested",
            note="preempted by pool acme",
        )
        changed = await driver.store.update(asked)
        assert changed is not None
        assert changed == await driver.read(running)
        assert changed.version == running.version + 1
        assert await driver.store.update(asked) is None

        why = ErrorRecord(type_name=PREEMPTED, message="preempted by pool acme")
        record = await driver.expect_accepted(job, "interrupted", worker="w7", started=begun, error=why)

        assert (record.state, record.attempt, record.error) == (JobState.QUEUED, 1, None)
        events = await other.store.events(job.id)
        assert [(event.kind, event.state, event.note) for event in events] == [
            ("preempt_requested", JobState.RUNNING, "preempted by pool acme"),
            ("preempted", JobState.QUEUED, "preempted by pool acme"),
        ]
        assert await other.store.attempts(job.id) == []

    @case
    async def test_a_retry_waits_in_the_store_and_counts_the_attempt(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()
        before = await driver.store.now_ms()

        record = await driver.expect_accepted(job, "retry", delay=HOUR, error=error("no"))

        assert (record.state, record.attempt, record.error) == (JobState.RETRYING, 2, error("no"))
        assert before + HOUR <= record.due <= await driver.store.now_ms() + HOUR
        assert [(timer.id, timer.due) for timer in await driver.timers()] == [(job.id, record.due)]
        assert await driver.lanes() == []

    @case
    async def test_a_snoozed_or_refused_job_waits_without_counting_the_attempt(self) -> None:
        driver = self.driver()

        for kind in _NOT_COUNTED:
            job = await driver.dispatch_new()
            before = await driver.store.now_ms()
            record = await driver.expect_accepted(job, kind, delay=HOUR)
            assert (record.state, record.attempt) == (JobState.SCHEDULED, 1), kind
            assert before + HOUR <= record.due <= await driver.store.now_ms() + HOUR
            assert record.due in [timer.due for timer in await driver.timers() if timer.id == job.id]
            assert await driver.store.attempts(job.id) == []

    @case
    async def test_a_held_job_waits_for_its_release_in_the_same_attempt(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        begun = await driver.store.now_ms()
        why = ErrorRecord(type_name=MISMATCH, message="its calls differ")

        held = await driver.expect_accepted(job, "held", worker="w7", started=begun, ran=5, error=why)

        assert (held.state, held.attempt, held.due) == (JobState.HELD, 1, job.due)
        assert (held.suspension, held.failure, await other.store.attempts(job.id)) == ("its calls differ", None, [])
        (event,) = await other.store.events(job.id)
        assert (event.kind, event.by, event.note) == ("hold", "w7", "its calls differ")
        assert (await driver.timers(), await driver.lanes()) == ([], [])
        (late,) = await driver.schedulers.apply([report(held, "succeeded")])
        assert late.outcome == "superseded"
        released = await driver.expect_update(held, JobState.QUEUED, kind="release")
        assert (released.suspension, released.failure) == ("", None)
        (again,) = (await driver.dispatch()).jobs
        assert (again.id, again.attempt) == (job.id, 1)

    @case
    async def test_an_interrupted_job_is_ready_again_without_counting_the_attempt(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()

        record = await driver.expect_accepted(job, "interrupted")

        assert (record.state, record.attempt) == (JobState.QUEUED, 1)
        assert record.due <= await driver.store.now_ms()
        (again,) = (await driver.dispatch()).jobs
        assert (again.id, again.attempt) == (job.id, 1)
        assert await driver.store.attempts(job.id) == []

    @case
    async def test_the_store_records_why_a_worker_refused_a_job(self) -> None:
        driver = self.driver()
        job = await driver.dispatch_new()

        await driver.expect_accepted(job, "refused", delay=HOUR, error=error("task mail is not known ☂", ""))

        events = await driver.store.events(job.id)
        assert [(event.kind, event.state) for event in events] == [("refused", JobState.SCHEDULED)]
        assert "task mail is not known ☂" in events[0].note

    @case
    async def test_an_end_that_no_worker_knows_is_an_event(self) -> None:
        driver, other = self.driver(), self.driver()
        lost, asked, seen = [await driver.dispatch_new(queue=f"q{number}") for number in range(3)]
        await driver.request_cancel(await driver.read(asked))

        await driver.expect_accepted(lost, "failed", by_scheduler=True, error=error("its worker died ☂"))
        await driver.expect_accepted(asked, "retry", delay=HOUR, error=error("no"))
        await driver.expect_accepted(seen, "failed", error=error("no"))

        ends = [
            [one for one in await other.store.events(job.id) if one.kind == "ended"] for job in (lost, asked, seen)
        ]
        assert [[(one.state, one.note) for one in found] for found in ends] == [
            [(JobState.FAILED, "its worker died ☂")],
            [(JobState.CANCELLED, "no")],
            [],
        ]

    @case
    async def test_attempts_that_did_not_end_the_job_are_recorded(self) -> None:
        driver, other = self.driver(), self.driver()
        job = await driver.dispatch_new()
        begun = await driver.store.now_ms() - HOUR
        expected: list[AttemptRecord] = []
        for number in (1, 2, 3):
            started = begun + number * 1_000
            failure = error(f"no {number} ☂")
            # A worker may not know what its run has used.
            used: dict[str, int] = {} if number == 2 else {"processor": 7, "peak_memory": number << 30}
            await driver.expect_accepted(
                job, "retry", started=started, ran=10, worker=f"w{number}", error=failure, **used
            )
            expected.append(
                AttemptRecord(
                    attempt=number,
                    state=JobState.FAILED,
                    started=started,
                    ended=started + 10,
                    worker=f"w{number}",
                    error=failure,
                    processor_ms=used.get("processor"),
                    peak_memory=used.get("peak_memory"),
                )
            )
            job = await driver.again(job)
            assert job.attempt == number + 1

        record = await driver.expect_accepted(job, "succeeded", started=begun, processor=9, peak_memory=5)

        assert (record.attempt, record.error) == (4, None)
        assert (record.processor_ms, record.peak_memory) == (9, 5)
        assert await other.store.attempts(job.id) == expected

    @case
    async def test_a_job_asked_to_cancel_ends_instead_of_running_again(self) -> None:
        driver = self.driver()

        for kind in REPORT_KINDS:
            job = await driver.dispatch_new(queue=kind)
            await driver.request_cancel(await driver.read(job), "not needed")
            record = await driver.expect_accepted(job, kind, delay=HOUR)
            assert record.state is after_report(kind, cancel_requested=True), kind
            assert record.cancel_requested == "not needed"
            assert record.attempt == 1
            assert await driver.store.attempts(job.id) == []
            assert await driver.lanes(kind) == []
        assert await driver.timers() == []

    @case
    async def test_texts_the_database_cannot_store_are_kept_escaped(self) -> None:
        driver = self.driver()
        odd = ErrorRecord(type_name="A\0\ud800", message="a\0b\udfff☂", traceback="\x00\ud83d\x01")
        kept = ErrorRecord(type_name="A\\x00\\ud800", message="a\\x00b\\udfff☂", traceback="\\x00\\ud83d\x01")

        failed = await driver.expect_accepted(await driver.dispatch_new(), "failed", error=odd)
        retried = await driver.expect_accepted(await driver.dispatch_new(), "retry", error=odd)
        refused = await driver.expect_accepted(await driver.dispatch_new(), "refused", error=odd, delay=HOUR)
        done = await driver.expect_accepted(
            await driver.dispatch_new(), "succeeded", content_type="a\0b\udfff☂", result=b"\0"
        )

        assert (done.content_type, done.result) == ("a\\x00b\\udfff☂", b"\0")
        assert failed.error == retried.error == kept
        assert [attempt.error for attempt in await driver.store.attempts(retried.id)] == [kept]
        assert refused.state is JobState.SCHEDULED

    @case
    async def test_a_result_and_a_traceback_of_one_mebibyte_are_stored(self) -> None:
        driver = self.driver()
        result = bytes(range(256)) * 4_096
        long = ErrorRecord(type_name="E", message="m", traceback="☂" * 2**19)

        succeeded = await driver.expect_accepted(await driver.dispatch_new(), "succeeded", result=result)
        failed = await driver.expect_accepted(await driver.dispatch_new(), "failed", error=long)

        assert succeeded.result == result
        assert failed.error == long
