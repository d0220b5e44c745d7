"""A replica dies at each of its steps: every occurrence is emitted and executed once.

`$TASKMQ_TEST_BEAT_STEPS` deaths (default 20); the whole campaign is 1000.
"""

import asyncio
import os
import random
from collections import Counter

import pytest

from taskmq import Context, TaskMQ
from taskmq.schedules.turn import LEASE_MS
from taskmq.worker import Worker, WorkerConfig
from tests.coroutines import run_by
from tests.unit.beat.stage import START, Stage, play
from tests.unit.worker.staged import Fault, Points

DEATHS = int(os.environ.get("TASKMQ_TEST_BEAT_STEPS", "20"))

# Steps of a replica for its first two occurrences: it reads, begins, claims, connects, declares, publishes and marks;
# then it claims, publishes and marks again.
_STEPS = ("read", "swap", "swap", "connect", "declare", "publish", "swap", "swap", "publish", "swap")


def _define(app: TaskMQ) -> None:
    @app.every("10s", name="tick", catchup="all", late_after="5m")
    @app.task(name="tick", queue="work")
    async def tick() -> None: ...


@run_by(play, _define)
async def test_the_list_of_steps_is_complete(stage: Stage, /) -> None:
    await stage.start()
    await stage.advance(10)
    await stage.advance(10)

    assert tuple(stage.apps[0].points.names) == _STEPS


@pytest.mark.parametrize("seed", range(DEATHS))
def test_a_replica_that_dies_at_any_step_loses_and_doubles_no_occurrence(seed: int) -> None:
    dice = random.Random(seed)
    step = seed % len(_STEPS)
    # Its last step takes effect or not; after that the replica is gone.
    last = dice.choice((Fault.HANGS, Fault.UNKNOWN, Fault.REFUSED))
    plan = [Fault.NONE] * step + [last]

    async def test(stage: Stage) -> None:
        ran: Counter[int] = Counter()
        await stage.start(points=Points(plan, rest=Fault.HANGS))
        for _ in range(dice.randint(1, 2)):
            await stage.start()
        # The dying replica loses some races to the others, and so dies at other steps as well.
        for _ in range(8):
            await stage.advance(dice.choice((10, 5, 2.5)))
        await stage.advance(LEASE_MS / 1000)
        await stage.advance(LEASE_MS / 1000)
        emitted = await stage.emitted_instants()
        now = (stage.clock.now_ms() - START) // 1000

        worker = stage.app.twin()

        @worker.task(name="tick", queue="work")
        async def tick(context: Context) -> None:
            assert context.scheduled_for is not None
            ran[round(context.scheduled_for.timestamp()) - START // 1000] += 1

        await Worker(worker, WorkerConfig(burst=True, concurrency=4)).run()
        # Until the worker has seen that it holds nothing.
        await asyncio.sleep(60)

        expected = set(range(10, now - LEASE_MS // 1000, 10))
        assert expected <= set(emitted)
        assert set(ran) == set(emitted)
        assert set(ran.values()) == {1}

    play(test, _define)
