"""Jobs cancelled while they wait, run, or are about to run."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from taskmq import Context
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, ids, play, send, working
from tests.unit.worker.staged import StagedApp, open_staged, settle_loop


async def revoke(app: StagedApp, job_id: str, reason: str = "not wanted") -> None:
    state = app.sessions.current().state
    assert state is not None
    await state.revocations.revoke(job_id, reason=reason, ttl=3600)


async def state_of(app: StagedApp, job_id: str) -> tuple[JobState, str] | None:
    record = await app.jobs.find_result(job_id)
    return None if record is None else (record.state, record.error.message if record.error else "")


async def wait_until_reached(look: Callable[[], Awaitable[bool] | bool]) -> None:
    for _ in range(20_000):
        found = look()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


CANCELLED = (JobState.CANCELLED, "not wanted")


@run_by(play)
async def test_a_job_cancelled_before_the_worker_started_ends_without_a_run(app: StagedApp, gate: Gate, /) -> None:
    await send(app, "a", "b")
    await revoke(app, "a")
    gate.open.set()

    async with working(app):
        assert gate.started == ["b"]
        assert await state_of(app, "a") == CANCELLED
        assert ids(await app.messages("work")) == []


@run_by(play)
async def test_a_running_coroutine_is_cancelled_and_its_cleanup_is_settled(app: StagedApp, gate: Gate, /) -> None:
    async with working(app) as (worker, _):
        await send(app, "a", "b")
        await settle_loop()
        assert gate.started == ["a", "b"]
        await revoke(app, "a")
        worker.on_revoked("a")
        await settle_loop()

        assert await state_of(app, "a") == CANCELLED
        assert gate.running == 1
        gate.open.set()
        await settle_loop()
        assert gate.finished == ["b"]
        assert worker.stats.counts["gated", "work"].outcomes == {"cancelled": 1, "succeeded": 1}


@run_by(play)
async def test_a_worker_without_notifications_polls(app: StagedApp, gate: Gate, /) -> None:
    async with working(app):
        await send(app, "a")
        await settle_loop()
        await revoke(app, "a")

        await asyncio.sleep(2.1)
        await settle_loop()

        assert await state_of(app, "a") == CANCELLED
        assert gate.running == 0


@run_by(play)
async def test_a_cancelled_job_that_waits_for_a_slot_ends_when_it_would_get_one(
    app: StagedApp, gate: Gate, /
) -> None:
    async with working(app, concurrency=1):
        await send(app, "a", "b")
        await settle_loop()
        await revoke(app, "b")
        await asyncio.sleep(2.1)
        gate.open.set()
        await settle_loop()

        assert gate.started == ["a"]
        assert await state_of(app, "b") == CANCELLED


@run_by(play, worker_concurrency=1)
async def test_a_cancelled_job_that_waits_for_resources_ends_at_once(app: StagedApp, gate: Gate, /) -> None:
    async with working(app):
        await send(app, "a", "b")
        await settle_loop()
        assert gate.started == ["a"]
        await revoke(app, "b")
        await asyncio.sleep(2.1)
        await settle_loop()

        assert await state_of(app, "b") == CANCELLED
        assert gate.running == 1


async def test_a_job_is_cancelled_between_two_attempts() -> None:
    with open_staged() as app:
        attempts: list[int] = []

        @app.task(name="flaky", queue="work")
        async def flaky(context: Context, label: str) -> None:
            attempts.append(context.attempt)
            raise ValueError("no")

        async with working(app):
            await send(app, "a", task="flaky")
            await settle_loop()
            await revoke(app, "a")
            await asyncio.sleep(2.1)
            app.fake_clock.advance(10)
            await settle_loop()

            assert attempts == [1]
            assert await state_of(app, "a") == CANCELLED


@pytest.mark.real_time
async def test_a_thread_sees_its_cancellation_and_may_end_by_itself() -> None:
    with open_staged() as app:
        begun, ended = threading.Event(), threading.Event()

        @app.task(name="looking", queue="work")
        def looking(context: Context, label: str) -> None:
            begun.set()
            while not context.cancelled:
                threading.Event().wait(0.001)
            ended.set()

        async with working(app) as (worker, _):
            await send(app, "a", task="looking")
            await wait_until_reached(begun.is_set)
            await revoke(app, "a")
            worker.on_revoked("a")

            async def is_cancelled() -> bool:
                return await state_of(app, "a") == CANCELLED

            await wait_until_reached(is_cancelled)
            assert ended.is_set()
            assert worker.status().abandoned == 0
    # In real time: nothing else waits for a thread.


@pytest.mark.real_time
async def test_a_thread_that_ignores_its_cancellation_is_abandoned_after_its_grace() -> None:
    with open_staged() as app:
        begun, let_go = threading.Event(), threading.Event()

        @app.task(name="stuck", queue="work")
        def stuck(label: str) -> None:
            begun.set()
            let_go.wait(30)

        async with working(app, cancel_grace=0.3) as (worker, _):
            await send(app, "a", task="stuck")
            await wait_until_reached(begun.is_set)
            began = asyncio.get_running_loop().time()
            await revoke(app, "a")
            worker.on_revoked("a")

            async def is_cancelled() -> bool:
                return await state_of(app, "a") == CANCELLED

            await wait_until_reached(is_cancelled)
            assert asyncio.get_running_loop().time() - began >= 0.3
            assert worker.status().abandoned == 1
            let_go.set()
    # In real time: nothing else waits for a thread.


@run_by(play)
async def test_a_finished_run_is_settled_by_its_own_outcome(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    async with working(app) as (worker, _):
        await send(app, "a")
        await settle_loop()
        await revoke(app, "a")
        worker.on_revoked("a")
        await settle_loop()

        assert await state_of(app, "a") == (JobState.SUCCEEDED, "")


@run_by(play)
async def test_cancellations_are_forgotten_after_their_time(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    async with working(app):
        await revoke(app, "a")
        await asyncio.sleep(2.1)
        app.fake_clock.advance(3601)
        await send(app, "a")
        await settle_loop()

        assert gate.finished == ["a"]
