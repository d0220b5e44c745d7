"""A worker on `memory://` that adapts its prefetch."""

import asyncio

from taskmq.errors import BrokerUnavailable
from taskmq.worker.intake.prefetch_tuner import PrefetchTuner
from taskmq.worker.worker import Worker
from tests.coroutines import run_by
from tests.unit.worker.gate import Gate, play, send, working
from tests.unit.worker.staged import StagedApp, settle_loop

_LOOK = 10.5
_EARLY = 0.6
_MINUTE = 60.0


def runs(worker: Worker, count: int, *, seconds: float) -> None:
    """Pretend that so many runs have ended; the clock of these tests does not advance real time."""
    histogram = worker.stats.counts["gated", "work"].run
    for _ in range(count):
        histogram.add(seconds)


async def in_hand(app: StagedApp) -> int | None:
    return (await app.stats("work")).unsettled


@run_by(play)
async def test_a_worker_of_short_tasks_increases_its_prefetch(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    async with working(app, concurrency=4):
        await send(app, *(str(number) for number in range(10)))
        await settle_loop()
        gate.open.clear()
        await send(app, *(f"later {number}" for number in range(300)))
        await settle_loop()
        assert await in_hand(app) == 8

        await asyncio.sleep(_LOOK)

        assert await in_hand(app) == 250


def test_a_backlog_of_short_tasks_increases_the_prefetch_soon() -> None:
    async def test(app: StagedApp, gate: Gate, *, backlog: int, soon: int) -> None:
        gate.open.set()
        await send(app, *(str(number) for number in range(backlog)))
        async with working(app, concurrency=4):
            await settle_loop()
            gate.open.clear()
            await send(app, *(f"later {number}" for number in range(300)))
            await settle_loop()

            await asyncio.sleep(_EARLY)

            assert await in_hand(app) == soon

    async def busy(app: StagedApp, gate: Gate) -> None:
        await test(app, gate, backlog=40, soon=250)

    async def just_begun(app: StagedApp, gate: Gate) -> None:
        await test(app, gate, backlog=30, soon=8)

    play(busy)
    play(just_begun)


@run_by(play)
async def test_a_worker_of_long_tasks_returns_jobs_that_others_could_run(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    async with working(app, concurrency=4) as (worker, _):
        await send(app, "first")
        await settle_loop()
        gate.open.clear()
        await send(app, *(f"later {number}" for number in range(20)))
        await settle_loop()
        assert await in_hand(app) == 8
        runs(worker, 10, seconds=30)

        await asyncio.sleep(_LOOK)

        assert await in_hand(app) == 4
        assert gate.running == 4
        gate.open.set()
        await settle_loop()
        assert len(gate.finished) == 21


def test_a_prefetch_is_fixed_for_a_minute_after_a_change_or_if_configured() -> None:
    async def test(app: StagedApp, gate: Gate) -> None:
        gate.open.set()
        async with working(app, concurrency=4) as (worker, _):
            await send(app, *(str(number) for number in range(10)))
            await settle_loop()
            await asyncio.sleep(_LOOK)
            gate.open.clear()
            runs(worker, 1000, seconds=30)
            await send(app, *(f"later {number}" for number in range(300)))
            await asyncio.sleep(_LOOK)
            assert await in_hand(app) == 250

            await asyncio.sleep(_MINUTE)

            assert await in_hand(app) == 4

    async def given_prefetch(app: StagedApp, gate: Gate) -> None:
        async with working(app, concurrency=4, prefetch=6) as (worker, _):
            await send(app, *(f"later {number}" for number in range(300)))
            await asyncio.sleep(_LOOK)
            assert await in_hand(app) == 6
            assert worker.status().backlog == 2

    play(test)
    play(given_prefetch)


@run_by(play)
async def test_an_unavailable_broker_changes_nothing_and_is_tried_again(app: StagedApp, gate: Gate, /) -> None:
    gate.open.set()
    async with working(app, concurrency=4) as (worker, _):
        await send(app, *(str(number) for number in range(10)))
        await settle_loop()
        asked: list[int] = []

        class Away:
            healthy = True

            async def stop(self) -> None: ...

            async def pause(self, queue: str) -> None: ...

            async def resume(self, queue: str) -> None: ...

            async def resize(self, queue: str, prefetch: int) -> None:
                asked.append(prefetch)
                if len(asked) == 1:
                    raise BrokerUnavailable("away")

        assert worker._dispatcher is not None
        prefetching = PrefetchTuner(Away(), worker._dispatcher.slots, worker.queues, worker.stats)
        await prefetching.look()
        assert asked == [250]
        runs(worker, 10, seconds=0.0)
        await prefetching.look()
        assert asked == [250] * 6
        runs(worker, 10, seconds=0.0)
        await prefetching.look()
        assert len(asked) == 6
