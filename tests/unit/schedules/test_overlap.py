"""Occurrences that arrive while earlier ones wait or run, with workers that run them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from taskmq import Context, TaskMQ
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.unit.beat.stage import START, Stage, play
from tests.unit.worker.staged import Fault, Points, StagedApp, settle_loop


@dataclass
class _Runs:
    """The runs of workers; each lasts until the test ends it."""

    options: dict[str, Any]
    going: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])
    began: list[int] = field(default_factory=list[int])
    ended: list[int] = field(default_factory=list[int])
    most: int = 0

    def define(self, app: TaskMQ) -> None:
        @app.every("10s", name="tick", late_after="10m", **self.options)
        @app.task(name="tick", queue="work", retry=None)
        async def tick(context: Context) -> None:
            assert context.scheduled_for is not None
            instant = round(context.scheduled_for.timestamp()) - START // 1000
            self.began.append(instant)
            self.going[instant] = asyncio.Event()
            self.most = max(self.most, len(self.going))
            try:
                await self.going[instant].wait()
                self.ended.append(instant)
            finally:
                del self.going[instant]

    def end(self, instant: int) -> None:
        self.going[instant].set()


@asynccontextmanager
async def _working(app: StagedApp) -> AsyncIterator[Worker]:
    worker = Worker(app, WorkerConfig(concurrency=8, grace=1))
    task = asyncio.create_task(worker.run())
    await settle_loop()
    try:
        yield worker
    finally:
        worker.drain()
        await task


def _play(test: Callable[[Stage, _Runs], Any], **options: Any) -> _Runs:
    runs = _Runs(options)

    async def with_worker(stage: Stage) -> None:
        await stage.start()
        await stage.start()
        async with _working(stage.twin()):
            await test(stage, runs)
            for going in [*runs.going.values()]:
                going.set()
            await settle_loop()
        # Until the worker has seen that it holds nothing.
        await asyncio.sleep(60)

    play(with_worker, runs.define)
    return runs


async def _pass(stage: Stage, seconds: int) -> None:
    for _ in range(seconds):
        await stage.advance(1)
        # The loop's own time as well: the worker renews its leases by it.
        await asyncio.sleep(1)


@run_by(_play)
async def test_all_occurrences_run_without_a_limit(stage: Stage, runs: _Runs, /) -> None:
    await _pass(stage, 50)
    assert runs.most == 5


def test_skip_drops_an_occurrence_while_an_earlier_one_runs() -> None:
    async def test(stage: Stage, runs: _Runs) -> None:
        await _pass(stage, 35)
        assert runs.began == [10]
        runs.end(10)
        await settle_loop()
        await _pass(stage, 20)

        assert runs.began == [10, 40]
        status = await stage.apps[0].schedules.astatus("tick")
        assert (status.fired, status.skipped, len(status.active)) == (2, 3, 1)

    assert _play(test, overlap="skip").most == 1


def test_buffer_one_runs_the_first_waiting_occurrence_as_soon_as_there_is_room() -> None:
    async def test(stage: Stage, runs: _Runs) -> None:
        await _pass(stage, 45)
        assert runs.began == [10]
        status = await stage.apps[0].schedules.astatus("tick")
        assert (status.waiting, status.skipped) == (1, 2)
        runs.end(10)
        await settle_loop()
        await _pass(stage, 1)

        assert runs.began == [10, 20]

    assert _play(test, overlap="buffer_one").most == 1


def test_buffer_all_runs_all_occurrences_one_after_the_other() -> None:
    async def test(stage: Stage, runs: _Runs) -> None:
        await _pass(stage, 45)
        for instant in (10, 20, 30, 40):
            assert [*runs.going] == [instant]
            runs.end(instant)
            await settle_loop()
            await _pass(stage, 1)

        assert runs.began == [10, 20, 30, 40]

    assert _play(test, overlap="buffer_all").most == 1


def test_a_limit_allows_its_number_of_runs_at_a_time() -> None:
    async def test(stage: Stage, runs: _Runs) -> None:
        await _pass(stage, 65)
        assert runs.began == [10, 20, 30]
        runs.end(20)
        await settle_loop()
        await _pass(stage, 2)
        assert runs.began == [10, 20, 30, 40]

    assert _play(test, overlap="buffer_all", max_concurrency=3).most == 3


def test_cancel_other_cancels_the_earlier_run_and_starts_when_it_has_ended() -> None:
    async def test(stage: Stage, runs: _Runs) -> None:
        await _pass(stage, 26)

        assert runs.began == [10, 20]
        assert runs.ended == []
        assert [*runs.going] == [20]

    assert _play(test, overlap="cancel_other").most == 1


def test_runs_of_a_dead_worker_make_room_after_a_while() -> None:
    runs = _Runs({"overlap": "skip"})

    async def test(stage: Stage) -> None:
        await stage.start()
        # It starts and is never heard of again: its message is lost with it, as by a purge.
        dead = stage.twin()
        task = asyncio.create_task(Worker(dead, WorkerConfig(concurrency=8, grace=1)).run())
        await settle_loop()
        await _pass(stage, 12)
        assert runs.began == [10]
        dead.points.rest = Fault.REFUSED
        task.cancel()
        await asyncio.wait({task})
        for left in asyncio.all_tasks():
            if left.get_name() == "taskmq worker holds occurrences":
                left.cancel()
        await stage.app.sessions.current().broker.purge("work")

        async with _working(stage.twin()):
            await _pass(stage, 60)
            for going in [*runs.going.values()]:
                going.set()
            await settle_loop()
            dead.points.rest = Fault.NONE
            await asyncio.sleep(60)
        # After the 30 seconds of its lease.
        assert runs.began[1:2] == [40]
        await asyncio.sleep(60)

    play(test, runs.define)


def test_a_worker_without_the_state_does_not_run_limited_jobs() -> None:
    runs = _Runs({"overlap": "skip"})

    async def test(stage: Stage) -> None:
        await stage.start()
        worker = stage.twin(points=Points(rest=Fault.REFUSED))
        worker.points.rest = Fault.NONE
        async with _working(worker):
            worker.points.rest = Fault.REFUSED
            await _pass(stage, 12)
            assert runs.began == []
            worker.points.rest = Fault.NONE
            await asyncio.sleep(3)
            await _pass(stage, 30)
            assert runs.began == [10]
            runs.end(10)
            await settle_loop()
        await asyncio.sleep(60)

    play(test, runs.define)


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "cancel_other"])
def test_a_catch_up_respects_the_limit_of_runs(overlap: Any) -> None:
    runs = _Runs({"overlap": overlap, "catchup": "all"})

    async def test(stage: Stage) -> None:
        first = await stage.start()
        first.stop()
        await settle_loop()
        await stage.advance(900)
        await stage.start()
        async with _working(stage.twin()):
            for _ in range(40):
                await _pass(stage, 1)
                for going in [*runs.going.values()]:
                    going.set()
                await settle_loop()
            assert len(runs.began) > 5
        await asyncio.sleep(60)

    play(test, runs.define)
    assert runs.most == 1
