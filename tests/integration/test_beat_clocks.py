"""Replicas of beat on hosts whose clocks are wrong, with a real Redis, whose clock counts."""

import asyncio
import contextlib
import time
import uuid
from collections import Counter

import pytest

from taskmq import TaskMQ
from taskmq.beat import Beat
from taskmq.broker import BrokerOptions
from taskmq.clock import SystemClock
from taskmq.context import SCHEDULED_FOR
from taskmq.envelope import decode_envelope
from taskmq_local import forget_memory, open_memory_broker

SKEWS = (0, 30_000, -30_000, 86_400_000)
SECOND = 1_000


class _WrongClock(SystemClock):
    """The host's clock, as somebody has set it."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead

    def jump(self, by: int) -> None:
        self.ahead += by


@pytest.mark.parametrize(
    "jumps", [(0, 0, 0, 0), (3_600_000, -3_600_000, 60_000, -172_800_000)], ids=["skewed", "set"]
)
def test_replicas_with_wrong_clocks_emit_every_instant_once_and_on_time(
    redis_url: str, jumps: tuple[int, ...]
) -> None:
    name = uuid.uuid4().hex
    clocks = [_WrongClock(skew) for skew in SKEWS]

    async def main() -> tuple[int, int, dict[int, list[int]]]:
        beats = [Beat(_app(name, redis_url, clock)) for clock in clocks]
        tasks = [asyncio.create_task(beat.run()) for beat in beats]
        await asyncio.sleep(1.5)
        began = time.time_ns() // 1_000_000
        await asyncio.sleep(1.2)
        for clock, by in zip(clocks, jumps, strict=True):
            clock.jump(by)
        await asyncio.sleep(2.4)
        ended = time.time_ns() // 1_000_000
        await asyncio.sleep(0.5)
        for beat in beats:
            beat.stop()
        await asyncio.gather(*tasks)
        return began, ended, await _emitted(name)

    try:
        began, ended, emitted = asyncio.run(main())
    finally:
        forget_memory(name)

    expected = range(-(-began // SECOND) * SECOND, ended, SECOND)
    assert Counter(len(found) for found in emitted.values()).keys() == {1}
    assert set(expected) <= set(emitted)
    # Nothing of the future or the past of a wrong clock.
    assert all(began - 3_000 < instant <= ended + 1_000 for instant in emitted)


def _app(name: str, state: str, clock: SystemClock) -> TaskMQ:
    app = TaskMQ(f"memory://{name}", state=state, clock=clock, name=name)

    @app.every("1s", name="tick")
    @app.task(name="tick", queue="ticks")
    async def tick() -> None: ...

    return app


async def _emitted(name: str) -> dict[int, list[int]]:
    broker = open_memory_broker(f"memory://{name}", BrokerOptions())
    found: dict[int, list[int]] = {}
    async with contextlib.aclosing(broker), broker.hold("ticks", limit=1_000) as held:
        for delivery in held:
            meta = decode_envelope(delivery.body).meta or {}
            found.setdefault(int(meta[SCHEDULED_FOR]), []).append(1)
    return found
