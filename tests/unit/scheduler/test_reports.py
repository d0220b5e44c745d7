"""Messages in the reports queue of a partition."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.jobs import AppliedReport, partition_of
from taskmq.contracts.stores import ErrorRecord
from taskmq.errors import BrokerUnavailable, StoreUnavailable
from taskmq.model import headers as header
from taskmq.model.envelope import JSON, Envelope, Invitation, encode_envelope, new_job_id
from taskmq.model.jobs.reports import Report, ReportKind, encode_reports
from taskmq.model.states import JobState
from taskmq.model.topology import jobs_queue, reports_queue
from taskmq.testing.broker_suite.case import peek
from taskmq_sql.jobs.codes import CODES
from tests.coroutines import run_by
from tests.unit.scheduler.stage import START, Player, Stage, play, until
from tests.unit.store_kit import StagedStore


async def _in_hand(stage: Stage, count: int = 1, **fields: Any) -> Player:
    """Start a worker that holds that many jobs."""
    await stage.submit(count, **fields)
    player = await stage.player()
    await until(lambda: len(player.deliveries) == count)
    return player


def _reports(stage: Stage, queue: str = "work") -> str:
    return reports_queue("shop", partition_of(queue))


@run_by(play)
async def test_an_unreadable_message_is_parked_and_those_behind_it_count(stage: Stage, /) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    message = Outgoing(queue=_reports(stage), body=b"\xff{", content_type=JSON, job_id="", task="?")
    await stage.broker.publish(message, timeout=5)
    await player.finish()

    await stage.all_ended()

    ((reason, body),) = await stage.parked_messages()
    assert "cannot decode the reports" in reason
    assert body == b"\xff{"
    assert process.scheduler.status().reports == {"malformed": 1, "accepted": 1}


@run_by(play)
async def test_only_the_report_of_an_unknown_job_is_parked(stage: Stage, /) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    (envelope,) = player.envelopes
    assert envelope.store is not None
    unknown = Report(id=new_job_id(START, bytes(10)), token=7, kind="succeeded", result=b"1")
    known = Report(id=envelope.store.id, token=envelope.store.token, kind="succeeded")
    await player.send(envelope.store.reports, unknown, known)

    await stage.all_ended()

    assert await stage.parked_messages() == [("the store has no such job", next(encode_reports([unknown])))]
    assert process.scheduler.status().reports == {"unknown": 1, "accepted": 1}


@pytest.mark.parametrize("kind", ["succeeded", "retry", "failed", "cancelled"])
def test_an_inapplicable_report_stops_no_other_and_fails_its_job(kind: ReportKind) -> None:
    class Picky(StagedStore):
        calls = 0

        @property
        def dispatching(self) -> Any:
            return _PickyDispatch(self, super().dispatching)

    class _PickyDispatch:
        def __init__(self, store: Picky, inner: Any) -> None:
            self._store = store
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
            self._store.calls += 1
            if any(report.worker == "odd" for report in reports):
                raise ValueError("odd")
            return list(await self._inner.apply(reports, came_by=came_by))

    async def test(stage: Stage) -> None:
        store = Picky(stage.database, clock=stage.clock)
        process = stage.start(store=store)
        player = await _in_hand(stage, 40)
        for number, envelope in enumerate(player.envelopes):
            is_odd = number == 17
            await player.report(envelope, kind if is_odd else "succeeded", worker="odd" if is_odd else "player")

        await until(lambda: stage.states() == {JobState.SUCCEEDED: 39, JobState.FAILED: 1})

        ((reason, _),) = await stage.parked_messages()
        assert "odd" in reason
        (failed,) = [job for job in stage.database.jobs.values() if job.state is JobState.FAILED]
        assert failed.error is not None
        assert (failed.error.type_name, failed.worker) == ("ReportParked", "")
        assert f"reported as {kind}" in failed.error.message
        assert process.scheduler.status().reports == {"accepted": 40, "malformed": 1}
        # By halves, and not one by one.
        assert store.calls < 20

    play(test)


@pytest.mark.parametrize(("kind", "logged"), [("started", 1), ("succeeded", 2)])
def test_a_job_that_continues_or_cannot_even_fail_is_unchanged(
    kind: ReportKind, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(StagedStore):
        @property
        def dispatching(self) -> Any:
            return _StubbornDispatch(super().dispatching)

    class _StubbornDispatch:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def apply(self, reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
            if reports[0].id == stubborn:
                raise ValueError("never")
            return list(await self._inner.apply(reports, came_by=came_by))

    stubborn = ""

    async def test(stage: Stage) -> None:
        nonlocal stubborn
        stage.start(store=Stubborn(stage.database, clock=stage.clock))
        player = await _in_hand(stage, 2)
        first, second = player.envelopes
        assert first.store is not None
        stubborn = first.store.id
        await player.report(first, kind)
        await player.report(second)

        await until(lambda: stage.states() == {JobState.DISPATCHED: 1, JobState.SUCCEEDED: 1})
        assert len(await stage.parked_messages()) == 1

    with caplog.at_level(logging.ERROR, "taskmq.scheduler"):
        play(test)
    assert len([record for record in caplog.records if stubborn in record.getMessage()]) == logged


@run_by(play)
async def test_few_reports_share_a_transaction_and_the_first_does_not_wait(stage: Stage, /) -> None:
    store = stage.start().store
    apply, sizes = store.dispatching.apply, list[int]()

    async def count_reports(reports: Sequence[Report], *, came_by: str = "") -> list[AppliedReport]:
        sizes.append(len(reports))
        return list(await apply(reports, came_by=came_by))

    vars(store.dispatching)["apply"] = count_reports
    player = await _in_hand(stage, 6)
    first, *others = player.envelopes
    began = stage.clock.monotonic()
    await player.report(first)
    await until(lambda: len(sizes) == 1)
    assert stage.clock.since(began) < 0.01
    for envelope in others:
        await player.report(envelope)
        await stage.pass_by(0.001)

    await stage.all_ended()
    assert sizes == [1, 5]
    assert stage.clock.since(began) < 0.02


@run_by(play)
async def test_an_invitation_dropped_by_the_broker_is_dispatched_again(stage: Stage, /) -> None:
    stage.start()
    player = await _in_hand(stage)
    (delivery,) = player.deliveries
    first = player.envelopes[0].store
    await _drop(stage, delivery.body, "expired")
    delivery.ack()
    player.deliveries.clear()

    await until(lambda: len(player.deliveries) == 1)

    (envelope,) = player.envelopes
    assert envelope.store is not None
    assert first is not None
    assert envelope.store.token != first.token
    assert envelope.attempt == 1
    await player.finish()
    await stage.all_ended()
    assert stage.states() == {JobState.SUCCEEDED: 1}


@run_by(play)
async def test_a_running_job_continues_if_the_broker_drops_another_copy_of_its_message(stage: Stage, /) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    await player.report(player.envelopes[0], "started")
    await until(lambda: JobState.RUNNING in stage.states())
    await _drop(stage, player.deliveries[0].body, "maxlen")

    await until(lambda: process.scheduler.status().reports == {"accepted": 1, "superseded": 1})
    await stage.pass_by(30)

    assert len(player.deliveries) == 1
    assert stage.states() == {JobState.RUNNING: 1}
    assert process.scheduler.status().in_flight == {"work": 1}
    await player.finish()
    await stage.all_ended()
    assert stage.states() == {JobState.SUCCEEDED: 1}


@run_by(play)
async def test_an_invitation_returned_too_often_has_failed(stage: Stage, /) -> None:
    stage.start()
    player = await _in_hand(stage)
    (delivery,) = player.deliveries
    await _drop(stage, delivery.body, "delivery_limit")
    delivery.ack()

    await stage.all_ended()

    (job,) = stage.database.jobs.values()
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert job.error.type_name == "WorkerLost"


@run_by(play)
async def test_a_success_with_an_unreadable_result_fails_with_a_reason(stage: Stage, /) -> None:
    stage.start()
    player = await _in_hand(stage)
    await player.finish(content_type=JSON, result=b"{", worker="node ☂")

    await stage.all_ended()

    (job,) = stage.database.jobs.values()
    assert (job.state, job.worker, job.result) == (JobState.FAILED, "node ☂", b"")
    assert job.error is not None
    assert job.error.message.startswith("its worker reported a result that is not application/json: ")


_OTHER_REASON = pytest.mark.nightly(
    "tests/unit/scheduler/test_reports.py::"
    "test_a_letter_with_an_invented_token_neither_fails_a_job_nor_sends_it_again"
)


@pytest.mark.parametrize(
    "reason",
    [
        "delivery_limit",
        pytest.param("expired", marks=_OTHER_REASON),
        pytest.param("maxlen", marks=_OTHER_REASON),
        "rejected",
    ],
)
@run_by(play)
async def test_a_letter_with_an_invented_token_neither_fails_a_job_nor_sends_it_again(
    stage: Stage, /, reason: str
) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    await player.report(player.envelopes[0], "started")
    await until(lambda: JobState.RUNNING in stage.states())
    await stage.submit(1, held=True)
    before = dict(stage.database.jobs)
    for job_id in before:
        envelope = Envelope(
            id=job_id, task="t", store=Invitation(id=job_id, token=2**53 - 1, reports=_reports(stage))
        )
        await _drop(stage, encode_envelope(envelope), reason)

    await until(lambda: process.scheduler.status().reports == {"accepted": 1, "invented": 2})
    await stage.pass_by(30)

    assert stage.database.jobs == before
    assert len(player.deliveries) == 1


@run_by(play)
async def test_a_letter_of_a_forgotten_dispatch_fails_its_job_by_its_proof(stage: Stage, /) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    (delivery,) = player.deliveries
    # As in a restored store.
    stage.database.ask("UPDATE job SET state = ?, token = 0", CODES[JobState.HELD])
    await _drop(stage, delivery.body, "delivery_limit")
    delivery.ack()

    await until(lambda: process.scheduler.status().reports == {"accepted": 1})

    assert stage.states() == {JobState.FAILED: 1}


@pytest.mark.nightly("tests/unit/scheduler/test_reports.py::test_a_report_with_an_invented_token_changes_no_job")
@run_by(play)
async def test_reports_with_invented_tokens_are_counted_and_logged_once_a_minute(
    stage: Stage, /, caplog: pytest.LogCaptureFixture
) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    (envelope,) = player.envelopes
    assert envelope.store is not None
    forged = Report(id=envelope.store.id, token=2**53 - 1, kind="succeeded", result=b'"FORGED"', worker="ev\nil")

    for _ in range(3):
        await player.send(envelope.store.reports, *[forged] * 50)
        await stage.pass_by(1)
    await stage.pass_by(60)
    await player.send(envelope.store.reports, forged)
    await until(lambda: process.scheduler.status().reports == {"invented": 151})

    said = [record.message for record in caplog.records if "never issued" in record.message]
    assert len(said) == 2
    assert f"{envelope.store.reports}: ignored 1 reports with tokens" in said[0]
    assert "ignored 150 reports with tokens" in said[1]
    assert f"worker 'ev\\nil' has succeeded job {envelope.store.id!r}" in said[1]
    assert stage.states() == {JobState.DISPATCHED: 1}
    await player.finish()
    await stage.all_ended()
    assert stage.states() == {JobState.SUCCEEDED: 1}


@pytest.mark.parametrize("kind", ["refused", "succeeded", "failed", "expired", "retry", "started"])
@run_by(play)
async def test_a_report_with_an_invented_token_changes_no_job(stage: Stage, /, kind: ReportKind) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    await stage.submit(1, held=True)
    before = dict(stage.database.jobs)
    for job_id in before:
        await player.send(_reports(stage), Report(id=job_id, token=2**53 - 1, kind=kind, worker="evil"))

    await until(lambda: process.scheduler.status().reports == {"invented": 2})

    assert stage.database.jobs == before


async def _drop(stage: Stage, body: bytes, reason: str) -> None:
    """Drop a message like a broker that dead letters."""
    message = Outgoing(
        queue=_reports(stage), body=body, content_type=JSON, job_id="", task="t", headers={header.REASON: reason}
    )
    await stage.broker.publish(message, timeout=5)


@run_by(play)
async def test_retries_and_snoozes_return_at_their_times_and_interrupted_jobs_at_once(stage: Stage, /) -> None:
    stage.start()
    player = await _in_hand(stage)
    error = ErrorRecord(type_name="ValueError", message="no", traceback="")
    seen: list[tuple[int, float]] = []
    for kind, delay in (("retry", 300), ("snoozed", 2_500), ("interrupted", 0), ("retry", 40)):
        began = stage.clock.monotonic()
        await player.finish(kind, delay=delay, error=error if kind == "retry" else None)  # type: ignore[arg-type]
        await player.has(1)
        seen.append((player.envelopes[0].attempt, stage.clock.since(began) - delay / 1000))

    assert [attempt for attempt, _ in seen] == [2, 2, 2, 3]
    # A tick of the timers, and a poll of the worker; the difference of two floats may be slightly off.
    assert all(-1e-6 <= late <= 0.025 for _, late in seen), seen
    (job,) = stage.database.jobs.values()
    assert [attempt.attempt for attempt in await stage.store.attempts(job.id)] == [1, 2]


@run_by(play)
async def test_a_result_is_stored_after_a_crash_between_applying_and_acknowledging(stage: Stage, /) -> None:
    process = stage.start()
    player = await _in_hand(stage)
    (envelope,) = player.envelopes
    assert envelope.store is not None
    report = Report(id=envelope.store.id, token=envelope.store.token, kind="succeeded", result=b"7")
    await process.kill()
    # It has applied the report, and died.
    await player.send(envelope.store.reports, report)
    async with peek(stage.broker, envelope.store.reports, limit=1):
        await stage.store.dispatching.apply([report])

    second = stage.start()
    record = await second.app.jobs.wait_for_result(envelope.id, 30)

    assert record is not None
    assert record.value == b"7"


@run_by(play)
async def test_a_redelivered_forged_report_replaces_no_result_in_the_state(stage: Stage, /) -> None:
    first = stage.start()
    player = await _in_hand(stage)
    (envelope,) = player.envelopes
    assert envelope.store is not None
    await player.finish(content_type=JSON, result=b"7")
    await stage.all_ended()
    await first.app.jobs.wait_for_result(envelope.id, 30)
    await first.kill()
    forged = Report(id=envelope.store.id, token=1, kind="succeeded", content_type=JSON, result=b"8")
    await player.send(envelope.store.reports, forged)
    # It has read the report, and died.
    async with peek(stage.broker, envelope.store.reports, limit=1):
        pass

    second = stage.start()
    await until(lambda: second.scheduler.status().reports == {"superseded": 1})
    record = await second.app.jobs.wait_for_result(envelope.id, 30)

    assert record is not None
    assert record.value == b"7"


@run_by(play)
async def test_an_unavailable_state_prevents_no_end_of_a_job(stage: Stage, /) -> None:
    process = stage.start()
    state = process.app.sessions.current().state
    assert state is not None
    await state.aclose()
    await stage.submit(3)
    await stage.playing()

    await stage.all_ended()

    assert stage.states() == {JobState.SUCCEEDED: 3}


@pytest.mark.parametrize("error", [BrokerUnavailable("no broker"), StoreUnavailable("no store")], ids=str)
@run_by(play)
async def test_reports_are_consumed_again_after_an_outage(stage: Stage, /, error: Exception) -> None:
    process = stage.start()
    if isinstance(error, BrokerUnavailable):
        process.broker.fail_calls("consume", 30, error)
    player = await _in_hand(stage)
    if isinstance(error, StoreUnavailable):
        process.store.is_reachable = False
        await stage.pass_by(3)
    await player.finish()
    await stage.pass_by(3)
    process.store.is_reachable = True

    await stage.all_ended()


@run_by(play)
async def test_invitations_and_reports_have_their_own_queues(stage: Stage, /) -> None:
    stage.start()
    await _in_hand(stage)

    found = await stage.broker.stats([jobs_queue("work"), _reports(stage)])

    assert [each.queue for each in found] == ["work.jobs", _reports(stage)]
    assert _reports(stage).startswith("taskmq.reports.shop.")
