"""Queues paused while a worker runs, and before it starts."""

import asyncio
import logging

import pytest

from taskmq.errors import StateUnavailable
from taskmq.operations.queues import pause_queues, resume_queues
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, ids, play, send, working
from tests.unit.worker.staged import StagedApp, settle_loop


@run_by(play)
async def test_a_paused_queue_starts_no_job_and_prefetched_ones_are_requeued_uncounted(
    app: StagedApp, gate: Gate, /
) -> None:
    async with working(app, concurrency=1, prefetch=4) as (worker, _):
        await send(app, "a", "b", "c")
        await settle_loop()
        assert gate.started == ["a"]

        await pause_queues(app, ["work"])
        worker.look_at_pauses()
        await settle_loop()

        assert worker.status().paused == ["work"]
        assert ids(await app.messages("work")) == ["b", "c"]
        gate.open.set()
        await settle_loop()
        assert gate.finished == ["a"]

        await resume_queues(app, ["work"])
        worker.look_at_pauses()
        await settle_loop()

        assert gate.finished == ["a", "b", "c"]
        assert [attempt for _, attempt, _ in gate.attempts] == [1, 1, 1]
        assert worker.status().paused == []


@run_by(play)
async def test_a_paused_worker_starts_no_job_of_any_queue_until_it_is_resumed(app: StagedApp, gate: Gate, /) -> None:
    async with working(app, concurrency=1, prefetch=4) as (worker, _):
        await send(app, "a", "b")
        await settle_loop()

        worker.set_paused(is_paused=True)
        await settle_loop()
        gate.open.set()
        await settle_loop()

        assert (gate.finished, ids(await app.messages("work"))) == (["a"], ["b"])
        assert (worker.status().state, worker.status().paused) == ("paused", [])

        worker.set_paused(is_paused=False)
        await settle_loop()

        assert (gate.finished, worker.status().state) == (["a", "b"], "running")
        assert [attempt for _, attempt, _ in gate.attempts] == [1, 1]


@run_by(play)
async def test_a_resumed_worker_still_respects_the_pause_of_a_queue(app: StagedApp, gate: Gate, /) -> None:
    async with working(app) as (worker, _):
        worker.set_paused(is_paused=True)
        await pause_queues(app, ["work"])
        worker.set_paused(is_paused=False)
        await settle_loop()
        await send(app, "a")
        await settle_loop()

        assert (gate.started, worker.status().paused) == ([], ["work"])


@run_by(play)
async def test_a_worker_polls_pauses_within_ten_seconds(app: StagedApp, gate: Gate, /) -> None:
    async with working(app, control=False):
        await pause_queues(app, ["work"])
        await asyncio.sleep(10.5)
        await send(app, "a")
        await settle_loop()

        assert gate.started == []
        assert ids(await app.messages("work")) == ["a"]


def test_a_worker_that_starts_later_respects_a_pause_and_logs_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        await pause_queues(app, ["work"], note="the printer is broken")
        await send(app, "a")

        async with working(app):
            assert gate.started == []
            await resume_queues(app, ["work"])
            await asyncio.sleep(10.5)
            assert gate.started == ["a"]
            gate.open.set()

    with caplog.at_level(logging.WARNING, "taskmq.worker"):
        play(test)

    assert "queue 'work' paused (the printer is broken): its jobs are not started" in caplog.text
    assert "queue 'work' resumed" in caplog.text


@run_by(play)
async def test_other_queues_continue_and_a_burst_does_not_wait_for_a_paused_one(
    app: StagedApp, gate: Gate, /
) -> None:
    @app.task(name="other", queue="others")
    async def other(label: str) -> None:
        gate.finished.append(label)

    await pause_queues(app, ["work"])
    await send(app, "paused")
    await send(app, "runs", queue="others", task="other")

    async with working(app, burst=True) as (_, running):
        await running

    assert gate.finished == ["runs"]
    assert ids(await app.messages("work")) == ["paused"]


@run_by(play)
async def test_a_paused_burst_ends_only_after_it_is_resumed(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    async with working(app, burst=True) as (worker, running):
        worker.set_paused(is_paused=True)
        await settle_loop()
        await send(app, "a")
        await asyncio.sleep(60)
        assert not running.done()
        assert gate.finished == []

        worker.set_paused(is_paused=False)
        await running

    assert gate.finished == ["a"]


def test_without_an_answer_of_the_state_the_last_known_pauses_apply(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        state = app.sessions.current().state
        assert state is not None
        await pause_queues(app, ["work"])
        await send(app, "a")
        async with working(app):

            async def fails(*_: object, **__: object) -> None:
                raise StateUnavailable("gone (test)")

            with monkeypatch.context() as patch:
                patch.setattr(type(state.schedules), "list_changed", fails)
                await asyncio.sleep(25)
                assert gate.started == []
            await resume_queues(app, ["work"])
            await asyncio.sleep(10.5)
            assert gate.started == ["a"]
            gate.open.set()

    play(test)

    assert caplog.text.count("reading the paused queues failed") == 1
