"""Replicas of beat on hosts with wrong clocks and a real Redis, whose clock is used."""

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from taskmq import TaskMQ
from taskmq.beat import Beat
from taskmq.contracts.broker import BrokerOptions, Delivery, Subscription
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.envelope import decode_envelope
from taskmq.model.topology import WorkQueue
from taskmq.run.facts import SCHEDULED_FOR
from taskmq_local import forget_memory, open_memory_broker

SKEWS = (0, 30_000, -30_000, 86_400_000)
SECOND = 1_000
MILLISECOND = 1_000_000
PATIENCE = 30.0


class _WrongClock(SystemClock):
    """The host's clock, set wrongly."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead

    def jump(self, by: int) -> None:
        self.ahead += by


@pytest.mark.parametrize(
    "jumps",
    [
        pytest.param((0, 0, 0, 0), id="skewed", marks=pytest.mark.nightly("tests/integration/test_beat_clocks.py")),
        pytest.param((3_600_000, -3_600_000, 60_000, -172_800_000), id="set"),
    ],
)
def test_replicas_with_wrong_clocks_emit_every_instant_once_and_on_time(
    redis_url: str, jumps: tuple[int, ...]
) -> None:
    name = uuid.uuid4().hex
    clocks = [_WrongClock(skew) for skew in SKEWS]

    async def main() -> tuple[int, int, Counter[int]]:
        beats = [Beat(_app(name, redis_url, clock)) for clock in clocks]
        tasks = [asyncio.create_task(beat.run()) for beat in beats]
        async with _watching(name) as emitted:
            # Once it runs.
            await emitted.after(0, 1)
            began = time.time_ns() // MILLISECOND
            await emitted.after(began, 1)
            for clock, by in zip(clocks, jumps, strict=True):
                clock.jump(by)
            ended = await emitted.after(began, 3)
            # Duplicates and early ones arrive by then.
            await emitted.after(ended, 1)
        for beat in beats:
            beat.stop()
        await asyncio.gather(*tasks)
        return began, ended, emitted.counts

    try:
        began, ended, emitted = asyncio.run(main())
    finally:
        forget_memory(name)

    assert set(emitted.values()) == {1}
    assert set(range(-(-began // SECOND) * SECOND, ended, SECOND)) <= set(emitted)
    # Nothing from the future or the past of a wrong clock.
    assert all(began - 3_000 < instant <= time.time_ns() // MILLISECOND + 1_000 for instant in emitted)


def _app(name: str, state: str, clock: SystemClock) -> TaskMQ:
    app = TaskMQ(f"memory://{name}", state=state, clock=clock, name=name)

    @app.every("1s", name="tick")
    @app.task(name="tick", queue="ticks")
    async def tick() -> None: ...

    return app


class _Emitted:
    """The number of emissions of each instant, in milliseconds."""

    def __init__(self) -> None:
        self.counts = Counter[int]()
        self._changed = asyncio.Event()

    def add(self, delivery: Delivery) -> None:
        self.counts[int((decode_envelope(delivery.body).meta or {})[SCHEDULED_FOR])] += 1
        delivery.ack()
        self._changed.set()

    async def after(self, instant: int, number: int) -> int:
        """Wait until that many instants after one were emitted; return the last."""
        async with asyncio.timeout(PATIENCE):
            while sum(each > instant for each in self.counts) < number:
                self._changed.clear()
                await self._changed.wait()
        return max(self.counts)


@asynccontextmanager
async def _watching(name: str) -> AsyncGenerator[_Emitted]:
    emitted = _Emitted()
    async with contextlib.aclosing(open_memory_broker(f"memory://{name}", BrokerOptions())) as broker:
        await broker.declare([WorkQueue("ticks")])
        consumer = await broker.consume([Subscription("ticks", 100)], emitted.add)
        yield emitted
        await consumer.stop()
