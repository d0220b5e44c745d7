"""Runs ended by an outage of a taskmq component: not failures, within the allowed number."""

import asyncio
import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import RetryPolicy, TaskMQ
from taskmq.errors import (
    AccessDenied,
    BrokerBlocked,
    BrokerUnavailable,
    LockLost,
    PartlySent,
    PublishRejected,
    PublishUnknown,
    Reject,
    Retry,
    ServerUnavailable,
    StateUnavailable,
    StoreUnavailable,
)
from taskmq.model.envelope import Envelope, Invitation, decode_envelope
from taskmq.model.outcome import Dead, Interrupted, Outcome, Retried, Snoozed
from taskmq.testing import Published
from taskmq.testing.broker_suite.case import peek
from taskmq.worker.attempt import Attempt
from taskmq.worker.settlement.outages import MOST_OUTAGES, count_outages, is_outage, pause_after
from taskmq.worker.settlement.outcome_of_error import outcome_of_error
from taskmq.worker.settlement.settle import Settler
from tests.coroutines import run_by
from tests.unit.worker.bench import bench
from tests.unit.worker.gate import Gate, play, send, working
from tests.unit.worker.services.test_cancellations import revoke
from tests.unit.worker.staged import FakeDelivery, StagedApp, open_staged, settle_loop
from tests.virtual_time import run

_OUTAGES = [
    StateUnavailable("no answer"),
    StateUnavailable("no answer", is_certain=False),
    StoreUnavailable("no answer"),
    BrokerUnavailable("no answer"),
    BrokerBlocked("memory alarm"),
    PublishUnknown("no confirm"),
    PartlySent({3: BrokerUnavailable("no answer"), 4: BrokerBlocked("alarm")}, sent=3),
    ExceptionGroup("tasks", [StateUnavailable("no answer"), ExceptionGroup("more", [BrokerBlocked("alarm")])]),
]
_FAILURES = [
    ValueError("no"),
    AccessDenied("wrong password"),
    PublishRejected("full"),
    ServerUnavailable("no answer"),
    LockLost("account", 7),
    PartlySent({3: BrokerUnavailable("no answer"), 4: PublishRejected("full")}, sent=3),
    ExceptionGroup("tasks", [StateUnavailable("no answer"), ValueError("no")]),
    PartlySent({0: PublishRejected("full")}, sent=0),
]


def _outcome(error: BaseException, *, policy: RetryPolicy | None = None, outages: int = 0) -> Outcome:
    return outcome_of_error(error, policy=policy, attempt=1, fraction=lambda: 0.5, outages=outages)


@pytest.mark.parametrize("error", _OUTAGES, ids=repr)
def test_a_component_that_does_not_answer_is_an_outage(error: Exception) -> None:
    assert is_outage(error)
    assert _outcome(error) == Interrupted(delay=timedelta(seconds=0.75), error=error)


@pytest.mark.parametrize("error", _FAILURES, ids=repr)
def test_every_other_error_is_a_failure_of_the_task(error: Exception) -> None:
    assert not is_outage(error)
    assert _outcome(error) == Dead("error", error)


def test_an_error_raised_by_the_task_from_an_outage_is_its_own() -> None:
    for own in (KeyError("no invoice"), Retry(5), Reject("no")):
        own.__cause__ = StateUnavailable("no answer")

        assert not is_outage(own)
        assert not isinstance(_outcome(own, policy=RetryPolicy()), Interrupted)


def test_a_policy_that_never_retries_an_outage_is_respected() -> None:
    error = StateUnavailable("no answer")

    assert _outcome(error, policy=RetryPolicy(never=(StateUnavailable,))) == Dead("error", error)
    assert isinstance(_outcome(error, policy=RetryPolicy(on=(OSError,))), Interrupted)


def test_the_retry_policy_decides_after_the_last_tolerated_outage() -> None:
    error = StateUnavailable("no answer")

    assert isinstance(_outcome(error, outages=MOST_OUTAGES - 1), Interrupted)
    assert _outcome(error, outages=MOST_OUTAGES) == Dead("error", error)
    assert isinstance(_outcome(error, outages=MOST_OUTAGES, policy=RetryPolicy()), Retried)


@given(st.integers(0, 2**31), st.floats(0, 1))
def test_pauses_grow_to_a_minute_and_keep_half_of_their_length(outages: int, fraction: float) -> None:
    pause, longest = pause_after(outages, fraction=fraction), pause_after(outages, fraction=1)

    assert longest / 2 <= pause <= longest <= timedelta(minutes=1)
    assert longest <= pause_after(outages + 1, fraction=1)


def test_a_thousand_interruptions_are_hours_of_one_outage() -> None:
    shortest = sum((pause_after(number, fraction=0) for number in range(MOST_OUTAGES)), timedelta())

    assert shortest > timedelta(hours=8)
    assert [pause_after(number, fraction=1).total_seconds() for number in range(7)] == [1, 2, 4, 8, 16, 32, 60]


@pytest.mark.parametrize(
    ("header", "held", "count"), [(None, 0, 0), (7, 0, 7), (7, 9, 9), (-3, 0, 0), ("many", 2, 2)], ids=repr
)
def test_outages_are_counted_by_the_message_or_the_shard(header: int | str | None, held: int, count: int) -> None:
    with bench(_define) as it:
        headers = {} if header is None else {"x-taskmq-outages": header}
        attempt = Attempt(FakeDelivery(b"", headers=headers), Envelope(task="job"), it.app.tasks["job"], "job-1")
        attempt.outages = held

        assert count_outages(attempt) == count


def test_outages_of_a_stored_job_are_counted_by_its_invitation() -> None:
    with bench(_define) as it:
        invitation = Invitation(id="1", token=7, reports="taskmq.reports.shop.0", outages=5)
        delivery = FakeDelivery(b"", headers={"x-taskmq-outages": 9})

        assert count_outages(Attempt(delivery, Envelope(task="job", store=invitation), it.app.tasks["job"], "1")) == 5


@pytest.mark.real_time
async def test_a_job_acknowledged_before_its_run_is_not_rerun_for_an_outage() -> None:
    for name, kind in (("job", Interrupted), ("early", Dead)):
        with bench(_define) as it:
            outcome = await it.outcome({"task": name})

        assert type(outcome) is kind, name


def _define(app: TaskMQ) -> None:
    @app.task(name="job")
    async def job() -> None:
        raise StateUnavailable("no answer")

    @app.task(name="early", ack="early")
    async def early() -> None:
        raise StateUnavailable("no answer")


def _settle_outcome(
    outcome: Outcome, *, outages: int | None = None, attempt: int = 2
) -> tuple[list[str], dict[str, object]]:
    """Settle a message; return the events, and the copy's attempt, pause (ms) and headers."""
    seen: list[tuple[list[str], dict[str, object]]] = []

    async def main() -> None:
        with open_staged() as app:
            _define(app)
            body = json.dumps({"task": "job", "id": "job-1", "attempt": attempt}).encode()
            await app.put(body, headers={} if outages is None else {"x-taskmq-outages": outages})
            async with peek(app.flaky, "work", limit=1) as (delivery,):
                await Settler(app, worker="w1").settle(
                    Attempt(delivery, decode_envelope(body), app.tasks["job"], "job-1", started=17), outcome
                )
            published = [entry.message for entry in app.flaky.journal if isinstance(entry, Published)]
            facts: dict[str, object] = {}
            for message in published:
                envelope = decode_envelope(message.body)
                assert envelope.eta is not None
                facts = {
                    "attempt": envelope.attempt,
                    "pause": envelope.eta - app.fake_clock.now_ms(),
                    "headers": message.headers,
                }
            seen.append((app.story(), facts))
            await app.aclose()

    run(main())
    return seen[0]


def test_an_interrupted_job_is_published_again_with_the_number_of_its_outages() -> None:
    outcome = Interrupted(delay=timedelta(seconds=3.9), error=StateUnavailable("no answer"))

    story, copy = _settle_outcome(outcome)
    _, again = _settle_outcome(outcome, outages=4)

    assert story[-1] == "acked work"
    assert copy == {"attempt": 2, "pause": 4_000, "headers": {"x-taskmq-outages": 1}}
    assert again["headers"] == {"x-taskmq-outages": 5}


def test_a_snooze_keeps_the_number_of_outages_and_a_retry_resets_it() -> None:
    _, snoozed = _settle_outcome(Snoozed(timedelta(seconds=1)), outages=4)
    _, retried = _settle_outcome(Retried(timedelta(seconds=1), ValueError("no")), outages=4)

    assert snoozed["headers"] == {"x-taskmq-outages": 4}
    assert "x-taskmq-outages" not in dict(retried["headers"])  # type: ignore[call-overload]


def test_the_log_reports_an_interrupted_run_and_when_the_job_continues(caplog: pytest.LogCaptureFixture) -> None:
    _settle_outcome(Interrupted(delay=timedelta(seconds=4), error=StateUnavailable("redis is gone")))

    (record,) = [record for record in caplog.records if "interrupted" in record.message]
    assert record.message == (
        "job job-1 of task job, attempt 2: interrupted, goes on in 4 s: taskmq.errors.StateUnavailable: redis is gone"
    )


@run_by(play)
async def test_a_cancelled_job_interrupted_by_an_outage_is_cancelled(app: StagedApp, gate: Gate, /) -> None:
    @app.task(name="long", queue="work")
    async def long(label: str) -> None:
        try:
            await gate.open.wait()
        except asyncio.CancelledError:
            raise StateUnavailable("no answer") from None

    async with working(app) as (worker, _):
        await send(app, "a", task="long")
        await settle_loop()
        await revoke(app, "a")
        worker.on_revoked("a")
        await settle_loop()

        assert worker.stats.counts["long", "work"].outcomes == {"cancelled": 1}
