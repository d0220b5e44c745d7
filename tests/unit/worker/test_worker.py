"""Slots and drain, on `memory://`."""

import asyncio
import logging

import msgspec
import pytest

from taskmq import Context, RetryPolicy
from taskmq.contracts.broker import Outgoing
from taskmq.model import headers as header
from taskmq.model.envelope import JSON, MSGPACK, decode_envelope
from taskmq.testing import Acked, Requeued
from taskmq.worker import WorkerConfig
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, ids, play, send, working
from tests.unit.worker.staged import Fault, StagedApp, open_staged, settle_loop

# A version 3 message: a worker that does not know `parts` would run the task with null in place of the value.
_IN_PARTS = b'{"v":3,"id":"in parts","task":"gated","args":[null],"parts":[]}'


@run_by(play)
async def test_tasks_run_and_their_results_are_stored_and_their_messages_acknowledged(
    app: StagedApp, gate: Gate, /
) -> None:
    await send(app, "a", "b")
    gate.open.set()

    async with working(app):
        assert gate.finished == ["a", "b"]
        assert sorted(app.story()) == ["acked work"] * 2 + ["stored succeeded"] * 2
        record = await app.record("a")
        assert record is not None
        assert record.worker == "w1"


@run_by(play)
async def test_no_more_tasks_run_at_a_time_than_there_are_slots(app: StagedApp, gate: Gate, /) -> None:
    labels = [f"job-{number}" for number in range(20)]
    await send(app, *labels)

    async with working(app, concurrency=3):
        assert gate.started == labels[:3]
        gate.open.set()
        await settle_loop()
        while len(gate.finished) < 20:
            await asyncio.sleep(0)

    assert gate.most == 3
    assert gate.started == labels


@run_by(play)
async def test_the_worker_holds_no_more_deliveries_of_a_queue_than_the_prefetch(
    app: StagedApp, gate: Gate, /
) -> None:
    await send(app, *map(str, range(20)))
    await send(app, *(f"high {n}" for n in range(20)), queue="work.p.high")

    async with working(app, concurrency=2, prefetch=5):
        for queue in ("work", "work.p.high"):
            stats = await app.stats(queue)
            assert (stats.unsettled, stats.ready) == (5, 15)


@pytest.mark.parametrize(("concurrency", "prefetch"), [(1, 2), (32, 64), (200, 250), (1000, 1000)])
def test_the_default_prefetch_is_twice_the_slots_within_limits(concurrency: int, prefetch: int) -> None:
    assert WorkerConfig(concurrency=concurrency).effective_prefetch == prefetch
    assert WorkerConfig(concurrency=concurrency, prefetch=7).effective_prefetch == 7


@run_by(play)
async def test_an_urgent_job_overtakes_waiting_ones(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "running", "low 1", "low 2", queue="work.p.low")
    async with working(app, concurrency=1):
        await send(app, "default", queue="work")
        await send(app, "high", queue="work.p.high")
        await settle_loop()
        gate.open.set()
        while len(gate.finished) < 5:
            await asyncio.sleep(0)

    assert gate.started == ["running", "high", "default", "low 1", "low 2"]


async def test_a_retry_comes_after_its_delay_with_the_next_attempt() -> None:
    with open_staged() as app:
        seen: list[int] = []

        @app.task(name="flaky", queue="work", retry=RetryPolicy(max_attempts=3, jitter=False))
        async def flaky(context: Context, label: str) -> None:
            seen.append(context.attempt)
            raise ValueError("no")

        async with working(app):
            await send(app, "a", task="flaky")
            await settle_loop()
            for delay in (1, 2):
                assert (await app.stats("work")).delayed == 1
                app.fake_clock.advance(delay)
                await settle_loop()

            assert seen == [1, 2, 3]
            assert ids(await app.messages("work.dlq")) == ["a"]


@run_by(play)
async def test_an_invalid_message_is_parked_and_the_worker_continues(
    app: StagedApp, gate: Gate, /, caplog: pytest.LogCaptureFixture
) -> None:
    await app.put(b"\xff", job_id="garbage")
    await app.put(b'{"task":"gated","args":[]}', job_id="misfit")
    await send(app, "good")
    gate.open.set()

    async with working(app):
        assert gate.finished == ["good"]
        assert ids(await app.messages("taskmq.parking")) == ["garbage"]
        assert ids(await app.messages("work.dlq")) == ["misfit"]


@pytest.mark.parametrize("body", [_IN_PARTS, msgspec.msgpack.encode(msgspec.json.decode(_IN_PARTS))])
def test_a_worker_without_support_for_a_message_version_parks_the_message(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        content_type = JSON if body is _IN_PARTS else MSGPACK
        await app.put(body, job_id="in parts", content_type=content_type)
        await send(app, "good")
        gate.open.set()

        async with working(app):
            assert gate.finished == ["good"]
            (parked,) = await app.messages("taskmq.parking")
            assert (parked.message_id, parked.body) == ("in parts", body)
            assert "the body has version 3; this taskmq reads versions 1 to 2" in str(parked.headers[header.REASON])
            assert await app.record("in parts") is None

    monkeypatch.setattr("taskmq.model.envelope.IN_PARTS", 2)
    play(test)


def test_an_outcome_delayed_by_a_fault_is_settled_a_moment_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        app.points.bugs = {"put": 1}
        await send(app, "a")
        gate.open.set()

        async with working(app):
            await asyncio.sleep(1)
            assert gate.started == ["a"]
            assert app.story() == ["stored succeeded", "acked work"]

    with caplog.at_level(logging.CRITICAL):
        play(test)
    assert "settling its outcome succeeded failed, will retry in 0.2 s" in caplog.text


@run_by(play)
async def test_an_outcome_that_cannot_be_settled_becomes_a_failure_and_a_dead_letter(
    app: StagedApp, gate: Gate, /
) -> None:
    app.points.bugs = {"put": 2}
    await send(app, "a")
    gate.open.set()

    async with working(app):
        await asyncio.sleep(3)
        assert gate.started == ["a"]
        assert app.story() == ["stored failed", "confirmed work.dlq", "acked work"]
        letter = (await app.messages("work.dlq"))[0]
    words = "came to succeeded, which could not be settled: tests.unit.worker.staged.Bug"
    assert words in str(letter.headers[header.ERROR])


@run_by(play)
async def test_an_unsettled_job_runs_once_and_is_requeued_when_the_worker_stops(
    app: StagedApp, gate: Gate, /
) -> None:
    app.points.bugs = {"put": 1_000}
    await send(app, "a")
    gate.open.set()

    async with working(app) as (worker, running):
        await asyncio.sleep(600)
        assert gate.started == ["a"]
        assert app.story() == []
        assert worker.status().unsettled == 1
        worker.requeue_now()
        await running
    assert app.story() == ["requeued work"]


@run_by(play, ack="early")
async def test_an_early_acknowledged_task_is_off_the_broker_while_it_runs(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app):
        assert gate.started == ["a"]
        assert app.story() == ["acked work"]
        gate.open.set()
        await settle_loop()
        assert app.story() == ["acked work", "stored succeeded"]


@run_by(play, ack="early")
async def test_an_early_acknowledged_task_is_not_lost_before_it_starts(app: StagedApp, gate: Gate, /) -> None:
    """The early message stays in its queue, since the broker refuses the copy."""

    app.points.plan = [Fault.NONE] * 2
    app.points.rest = Fault.REFUSED
    body = b'{"task":"gated","id":"a","args":["a"],"eta":%d}' % (app.fake_clock.now_ms() + 60_000)
    await app.put(body, job_id="a")

    async with working(app) as (worker, running):
        await asyncio.sleep(30)
        worker.drain()
        await running

    assert "acked work" not in app.story()
    assert ids(await app.messages("work")) == ["a"]


@run_by(play)
async def test_a_draining_worker_requeues_waiting_jobs_in_order_and_finishes_the_others(
    app: StagedApp, gate: Gate, /
) -> None:
    await send(app, "a", "b", "c", "d", "e")

    async with working(app, concurrency=2) as (worker, running):
        worker.drain()
        await settle_loop()

        left = await app.messages("work")
        assert ids(left) == ["c", "d", "e"]
        assert all(decode_envelope(delivery.body).attempt == 1 for delivery in left)
        assert not running.done()

        gate.open.set()
        await running

    assert gate.finished == gate.started == ["a", "b"]
    assert app.story().count("acked work") == 2
    assert worker.left_behind == 0


@run_by(play)
async def test_a_draining_worker_accepts_nothing_new(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app) as (worker, running):
        worker.drain()
        await settle_loop()
        await send(app, "b")
        await settle_loop()
        gate.open.set()
        await running

    assert gate.started == ["a"]
    assert ids(await app.messages("work")) == ["b"]


@run_by(play)
async def test_a_delivery_during_the_stop_of_the_consumer_is_requeued_once(app: StagedApp, gate: Gate, /) -> None:
    async with working(app) as (worker, running):
        twin = app.twin()
        for label in ("a", "b"):
            # A plain call: the worker receives it in the loop iteration in which it is told to drain.
            twin.sessions.current().broker.publish(
                Outgoing(queue="work", body=b"{}", content_type="", job_id=label, task="gated"), timeout=5
            )
        worker.drain()
        await running

    assert gate.started == []
    settles = [entry for entry in app.journal if isinstance(entry, Acked | Requeued)]
    assert [type(entry) for entry in settles] == [Requeued, Requeued]
    assert ids(await app.messages("work")) == ["a", "b"]


@run_by(play)
async def test_running_tasks_get_their_grace_period(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app, grace=30) as (worker, running):
        worker.drain()
        await asyncio.sleep(29)
        assert not running.done()
        gate.open.set()
        await running

    assert gate.finished == ["a"]
    assert app.story() == ["stored succeeded", "acked work"]


@run_by(play)
async def test_runs_are_interrupted_after_the_grace_period_and_requeued_without_an_attempt(
    app: StagedApp, gate: Gate, /
) -> None:
    await send(app, "a", "b")
    async with working(app, grace=30) as (worker, running):
        before = asyncio.get_running_loop().time()
        worker.drain()
        await running
        assert 30 <= asyncio.get_running_loop().time() - before < 31

    assert gate.running == 0
    assert app.story() == ["requeued work"] * 2
    assert await app.record("a") is None

    gate.open.set()
    again = app.twin()
    gate.define(again)
    async with working(again):
        assert sorted(gate.attempts[2:]) == [("a", 1, True), ("b", 1, True)]


@run_by(play)
async def test_a_second_signal_requeues_running_jobs(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a")
    async with working(app, grace=3600) as (worker, running):
        worker.drain()
        await asyncio.sleep(5)
        before = asyncio.get_running_loop().time()

        worker.requeue_now()
        await running

        assert asyncio.get_running_loop().time() - before < 1
    assert app.story() == ["requeued work"]


@run_by(play)
async def test_a_run_that_ends_with_the_grace_period_is_settled_and_not_interrupted(
    app: StagedApp, gate: Gate, /
) -> None:
    # Its arguments do not match, and its dead letter hangs.
    app.flaky.hang_publishes()
    await app.put(b'{"task":"gated","id":"a"}', job_id="a")
    async with working(app, grace=0) as (worker, running):
        assert app.flaky.hanging == 1
        worker.drain()
        await asyncio.sleep(1)
        assert not running.done()

        app.flaky.release_publishes()
        await running

    assert app.story() == ["stored failed", "confirmed work.dlq", "acked work"]


@run_by(play)
async def test_a_stopping_worker_requeues_jobs_that_it_cannot_store(app: StagedApp, gate: Gate, /) -> None:
    app.points.plan = [Fault.NONE] * 2
    app.points.rest = Fault.REFUSED
    await send(app, "a")
    gate.open.set()
    async with working(app, grace=10) as (worker, running):
        worker.drain()
        await running

    assert app.story() == ["requeued work"]
    assert worker.left_behind == 0


async def test_a_coroutine_that_ignores_cancellation_is_abandoned_and_its_job_requeued() -> None:
    with open_staged() as app:
        released = asyncio.Event()

        @app.task(name="stubborn", queue="work")
        async def stubborn(label: str) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

        await send(app, "a", task="stubborn")
        async with working(app, grace=1) as (worker, running):
            worker.drain()
            await running

        assert worker.left_behind == 1
        assert app.story() == ["requeued work"]
        assert ids(await app.messages("work")) == ["a"]
        released.set()
        await settle_loop()
        assert app.story()[0] == "requeued work"
        assert "acked work" not in app.story()


@run_by(play)
async def test_a_cancelled_worker_requeues_everything_and_leaves_no_task_behind(
    app: StagedApp, gate: Gate, /
) -> None:
    for moment in ("running", "draining"):
        await send(app, *(f"{moment} {n}" for n in range(4)))
        twin = app.twin()
        gate.define(twin)
        async with working(twin, concurrency=2) as (worker, running):
            if moment == "draining":
                worker.drain()
                await settle_loop()
            before = asyncio.get_running_loop().time()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert asyncio.get_running_loop().time() - before < 1

        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert gate.running == 0
        assert ids(await app.messages("work")) == [f"{moment} {n}" for n in range(4)]
        await _purge(app)


async def _purge(app: StagedApp) -> None:
    for delivery in await app.messages("work"):
        assert delivery.message_id
    twin = app.twin()
    await twin.sessions.current().broker.purge("work")
    await twin.aclose()
