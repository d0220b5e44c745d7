"""The recorder reports every run of a recorded queue, within its bounds, and holds up no job."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import BrokerUnavailable
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.history.redaction import Redactor
from taskmq.model.history.sent_runs import RUNS_TASK, RunReport, decode_runs
from taskmq.model.outcome import (
    EXPIRED,
    AlreadyDone,
    Cancelled,
    Dead,
    Interrupted,
    Outcome,
    Parked,
    Retried,
    Snoozed,
    Succeeded,
)
from taskmq.model.states import JobState
from taskmq.model.topology import ReportQueue
from taskmq.testing import Confirmed, FakeClock, FlakyBroker
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.services.error_words import ErrorWords
from taskmq.worker.services.run_recorder import RunRecorder
from taskmq.worker.settlement.error_text import ErrorTexts
from taskmq_local import forget_memory, open_memory_broker
from tests.unit.worker.staged import FakeDelivery

_QUEUE = "taskmq.reports.shop.0"
_ERROR = ValueError("password=hunter2")
_SECOND = timedelta(seconds=1)


class _Stage:
    """A recorder with the broker and the clock that it uses."""

    def __init__(self, recorder: RunRecorder, stats: WorkerStats, broker: FlakyBroker, clock: FakeClock) -> None:
        self.recorder = recorder
        self.stats = stats
        self.broker = broker
        self.clock = clock

    def start(self, name: str, *, queue: str = "mails", **fields: object) -> tuple[FakeDelivery, Envelope]:
        delivery, envelope = FakeDelivery(b"", queue=queue), Envelope(id=name, task="mail", enqueued=1, **fields)  # type: ignore[arg-type]
        assert self.stats.on_start is not None
        self.stats.on_start(delivery, envelope, name, None)
        return delivery, envelope

    def end(self, run: tuple[FakeDelivery, Envelope], outcome: Outcome, *, seconds: float = 0.25) -> None:
        assert self.stats.on_end is not None
        self.stats.on_end(*run, run[1].id, outcome, seconds, 7)

    def reports(self) -> list[RunReport]:
        messages = [entry.message for entry in self.broker.journal if isinstance(entry, Confirmed)]
        assert {(message.queue, message.task) for message in messages} <= {(_QUEUE, RUNS_TASK)}
        return [report for message in messages for report in decode_runs(message.body)]

    def states(self) -> list[JobState]:
        return [report.run.state for report in self.reports()]


@asynccontextmanager
async def _open_stage(most: int = 100) -> AsyncGenerator[_Stage]:
    name = uuid.uuid4().hex
    broker, clock, stats = (
        FlakyBroker(open_memory_broker(f"memory://{name}", BrokerOptions())),
        FakeClock(),
        WorkerStats(),
    )
    await broker.connect(timeout=1)
    await broker.declare_reports([ReportQueue(_QUEUE)])
    recorder = RunRecorder(
        broker,
        stats,
        queues=["mails"],
        reports=_QUEUE,
        worker="w",
        timeout=5,
        clock=clock,
        words=ErrorWords(ErrorTexts(Redactor()), "traceback"),
        most=most,
    )
    try:
        yield _Stage(recorder, stats, broker, clock)
    finally:
        await broker.aclose()
        forget_memory(name)


@pytest.mark.parametrize(
    ("outcome", "state", "delay", "error"),
    [
        (Succeeded(None), JobState.SUCCEEDED, None, None),
        (AlreadyDone("application/json", b"1"), JobState.SUCCEEDED, None, None),
        (Retried(_SECOND, _ERROR), JobState.RETRYING, 1_000, "ValueError"),
        (Snoozed(_SECOND), JobState.SCHEDULED, 1_000, None),
        (Interrupted("its worker stopped"), JobState.QUEUED, None, None),
        (Interrupted(delay=_SECOND, error=_ERROR), JobState.QUEUED, 1_000, "ValueError"),
        (Dead("error", _ERROR), JobState.FAILED, None, "ValueError"),
        (Cancelled("not needed"), JobState.CANCELLED, None, "JobCancelled"),
        (Cancelled(EXPIRED), JobState.EXPIRED, None, "JobCancelled"),
    ],
    ids=str,
)
async def test_each_outcome_of_a_run_is_reported_with_its_times(
    outcome: Outcome, state: JobState, delay: int | None, error: str | None
) -> None:
    async with _open_stage() as stage:
        began = stage.clock.now_ms()
        stage.end(stage.start("a", attempt=2, tenant="acme"), outcome)
        await stage.recorder.flush()
        (report,) = stage.reports()

    job, run = report.job, report.run
    assert (job.name, job.task, job.queue, job.tenant, job.sent) == ("a", "mail", "mails", "acme", 1)
    assert (run.attempt, run.worker, run.started, run.ended) == (2, "w", began, began + 250)
    assert (run.state, run.processor_ms) == (state, 7)
    assert run.due == (None if delay is None else began + 250 + delay)
    assert (None if run.error is None else run.error.type_name) == error
    assert "hunter2" not in str(run.error)


async def test_a_run_that_continues_is_reported_once_until_it_ends() -> None:
    async with _open_stage() as stage:
        run = stage.start("a")
        await stage.recorder.flush()
        await stage.recorder.flush()
        stage.end(run, Succeeded(None))
        await stage.recorder.flush()

        assert stage.states() == [JobState.RUNNING, JobState.SUCCEEDED]
        first, last = stage.reports()
        assert first.run.started == last.run.started


async def test_only_sent_jobs_of_recorded_queues_are_reported() -> None:
    invitation = Invitation(id="a", token=1, reports=_QUEUE)
    async with _open_stage() as stage:
        for run in (stage.start("other", queue="other"), stage.start("stored", store=invitation)):
            stage.end(run, Succeeded(None))
        # Turned back or parked before a run.
        for outcome in (Snoozed(_SECOND), Interrupted(), Retried(_SECOND, _ERROR), Parked("unknown task")):
            stage.end((FakeDelivery(b"", queue="mails"), Envelope(id="late", task="mail", enqueued=1)), outcome)
        await stage.recorder.flush()
        assert stage.reports() == []

        stage.end(
            (FakeDelivery(b"", queue="mails.p.high"), Envelope(id="gone", task="mail")), Cancelled("x"), seconds=0
        )
        await stage.recorder.flush()
        assert stage.states() == [JobState.CANCELLED]


async def test_two_runs_of_one_attempt_keep_their_own_starts() -> None:
    async with _open_stage() as stage:
        first = stage.start("a")
        stage.clock.advance("10s")
        second = stage.start("a")
        stage.clock.advance("1s")
        stage.end(first, Succeeded(None), seconds=11)
        stage.end(second, Succeeded(None), seconds=1)
        await stage.recorder.flush()

        starts = [report.run.started for report in stage.reports()]
    assert starts[1] - starts[0] == 10_000


async def test_reports_wait_while_the_broker_refuses_them(caplog: pytest.LogCaptureFixture) -> None:
    async with _open_stage() as stage:
        stage.end(stage.start("a"), Succeeded(None))
        stage.broker.fail_publishes(1, BrokerUnavailable("gone"))
        await stage.recorder.flush()
        assert stage.reports() == []
        stage.end(stage.start("b"), Succeeded(None))
        await stage.recorder.flush()

        assert [report.job.name for report in stage.reports()] == ["a", "b"]
    assert "1 runs of sent jobs are not recorded yet: gone" in caplog.text


async def test_runs_beyond_the_bound_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with _open_stage(most=2) as stage:
        for name in "abcde":
            stage.end(stage.start(name), Succeeded(None))
        await stage.recorder.flush()

        assert [report.job.name for report in stage.reports()] == ["a", "b"]
        assert stage.recorder.dropped == 3
    assert "3 runs of sent jobs will not be recorded" in caplog.text


async def test_a_stopping_worker_reports_interrupted_runs_as_queued() -> None:
    async with _open_stage() as stage:
        stage.start("a")
        stage.end(stage.start("b"), Succeeded(None))
        running = asyncio.create_task(stage.recorder.run())
        stage.recorder.stop()
        await running

        assert sorted((report.job.name, report.run.state) for report in stage.reports()) == [
            ("a", JobState.QUEUED),
            ("b", JobState.SUCCEEDED),
        ]
        assert (stage.stats.on_start, stage.stats.on_end) == (None, None)


async def test_every_listener_of_the_runs_is_called() -> None:
    async with _open_stage() as stage, _open_stage() as other:
        stage.stats.listen(other.recorder)
        stage.end(stage.start("a"), Succeeded(None))
        stage.stats.stop_listening(other.recorder)
        stage.end(stage.start("b"), Succeeded(None))
        for one in (stage, other):
            await one.recorder.flush()

        assert [report.job.name for report in stage.reports()] == ["a", "b"]
        assert [report.job.name for report in other.reports()] == ["a"]
