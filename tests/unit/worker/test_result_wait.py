"""Results that cannot be stored for longer than `--result-wait`."""

import asyncio
import json

import pytest

from taskmq import RetryPolicy, WorkQueue
from taskmq.contracts.broker import Delivery
from taskmq.errors import StateUnavailable
from taskmq.model import headers as header
from taskmq.model.topology import shard_queue
from taskmq.testing import Confirmed
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, play, send, working
from tests.unit.worker.staged import StagedApp, open_staged, settle_loop
from tests.virtual_time import run

_WAIT = 60.0


async def _letter(app: StagedApp) -> Delivery:
    (letter,) = await app.messages("work.dlq")
    return letter


@run_by(play)
async def test_a_job_whose_result_cannot_be_stored_in_time_runs_again_as_the_same_attempt(
    app: StagedApp, gate: Gate, /, caplog: pytest.LogCaptureFixture
) -> None:
    app.points.refused = {"put"}
    await send(app, "a")
    gate.open.set()

    async with working(app, result_wait=_WAIT) as (worker, _):
        await asyncio.sleep(_WAIT - 1)
        assert app.story() == []
        assert worker.status().unsettled == 1
        await asyncio.sleep(2)
        assert worker.status().unsettled == 0
        assert app.story() == ["confirmed work", "acked work"]
        (copy,) = [entry.message for entry in app.journal if isinstance(entry, Confirmed)]
        assert copy.headers[header.OUTAGES] == 1
        app.points.refused = set()
        app.fake_clock.advance(5)
        await settle_loop()

        assert gate.attempts == [("a", 1, False), ("a", 1, False)]
        assert app.story()[2:] == ["stored succeeded", "acked work"]
        (count,) = worker.stats.counts.values()
        assert count.outcomes == {"succeeded": 2, "interrupted": 1}
    assert "its result could not be stored, so it ends as interrupted: no state (staged)" in caplog.text


@run_by(play)
async def test_an_outage_within_the_time_runs_no_job_twice(app: StagedApp, gate: Gate, /) -> None:
    app.points.refused = {"put"}
    await send(app, "a")
    gate.open.set()

    async with working(app, result_wait=_WAIT):
        await asyncio.sleep(_WAIT - 6)
        app.points.refused = set()
        await asyncio.sleep(6)

        assert gate.started == ["a"]
        assert app.story() == ["stored succeeded", "acked work"]


@run_by(play, ack="early")
async def test_an_early_acknowledged_job_without_a_result_is_a_dead_letter_and_runs_once(
    app: StagedApp, gate: Gate, /
) -> None:
    app.points.refused = {"put"}
    await send(app, "a")
    gate.open.set()

    async with working(app, result_wait=_WAIT):
        await asyncio.sleep(3 * _WAIT)
        letter = await _letter(app)

    assert gate.started == ["a"]
    assert app.story() == ["acked work", "confirmed work.dlq"]
    assert letter.headers[header.ERROR_TYPE] == "taskmq.errors.StateUnavailable"


@run_by(play, retry=RetryPolicy(never=(StateUnavailable,)))
async def test_a_task_that_never_retries_outages_runs_once_and_is_a_dead_letter(
    app: StagedApp, gate: Gate, /
) -> None:
    app.points.refused = {"put"}
    await send(app, "a")
    gate.open.set()

    async with working(app, result_wait=_WAIT):
        await asyncio.sleep(3 * _WAIT)

    assert gate.started == ["a"]
    assert app.story() == ["confirmed work.dlq", "acked work"]


def test_a_failed_or_cancelled_job_ends_without_a_result(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with open_staged() as app:

            @app.task(name="fails", queue="work", retry=None)
            async def fails(label: str) -> None:
                raise ValueError(label)

            app.points.refused = {"put"}
            await send(app, "a", task="fails")
            late = {"task": "fails", "id": "b", "args": ["b"], "expires": 1}
            await app.put(json.dumps(late).encode(), job_id="b", task="fails")
            async with working(app, result_wait=_WAIT):
                await asyncio.sleep(_WAIT + 1)
                await settle_loop()
                letter = await _letter(app)
            assert letter.message_id == "a"
            assert letter.headers[header.ERROR] == "ValueError: a"
            assert sorted(app.story()) == ["acked work", "acked work", "confirmed work.dlq"]

    run(test())
    assert "job a of task fails has no result: failed: no state (staged)" in caplog.text
    assert "job b of task fails has no result: cancelled: no state (staged)" in caplog.text


def test_in_an_ordered_queue_the_jobs_behind_wait_for_the_second_run() -> None:
    started: list[str] = []

    async def test() -> None:
        with open_staged(queues=[WorkQueue("turns", ordered=1)]) as app:

            @app.task(name="turn", queue="turns", order_key="label", retry=None)
            async def turn(label: str) -> None:
                started.append(label)

            app.points.refused = {"put"}
            shard = shard_queue("turns", 0)
            for label in ("a", "b"):
                await app.tasks["turn"].asend(label)
            async with working(app, result_wait=_WAIT):
                await asyncio.sleep(_WAIT + 1)
                app.points.refused = set()
                app.fake_clock.advance(10)
                await asyncio.sleep(10)
            assert app.story()[2:] == ["stored succeeded", f"acked {shard}"] * 2

    run(test())
    assert started == ["a", "a", "b"]
