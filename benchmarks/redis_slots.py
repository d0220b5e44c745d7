"""`python -m benchmarks.redis_slots`: capacity of one hash slot of a Redis Cluster.

Delayed jobs, limits and cancellations each use one hash tag, so each of the three lives on one node of the cluster.
The processor time of Redis's single thread per operation gives the operations per second that this node can do.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import PlaceDemand, RateDemand, WaitingMessage
from taskmq_redis import RedisState, open_state
from tests.servers.redis import Redis

_AT_A_TIME: Final = 200
_COUNT: Final = 100_000
_FEW: Final = 20_000
_BATCH: Final = 100
_DAY: Final = 86_400_000


def main() -> int:
    with Redis() as server:
        asyncio.run(_measure(server))
    return 0


async def _measure(server: Redis) -> None:
    state = open_state(server.url, BrokerOptions(name="bench"))
    assert isinstance(state, RedisState)
    print(f"{'':44}{'us of Redis':>12}{'a second':>12}{'bytes each':>12}")
    await _delays(server, state)
    await _limits(server, state)
    await _cancellations(server, state)
    await state.aclose()


async def _delays(server: Redis, state: RedisState) -> None:
    now = int(time.time() * 1000)

    def waiting(number: int, due: int) -> WaitingMessage:
        body = b'{"v":1,"id":"%036d","task":"shop.mail","args":[7,"a line of text"]}' % number
        return WaitingMessage(
            job_id=f"{number:036d}",
            task="shop.mail",
            queue="mail",
            due=due,
            body=body,
            content_type="application/json",
        )

    await _row(server, f"a job is put, {_COUNT:,} wait", _COUNT, lambda n: state.delays.put(waiting(n, now + _DAY)))
    await _row(server, "a job is put that is due", _FEW, lambda n: state.delays.put(waiting(_COUNT + n, now)))

    async def relay(_: int) -> None:
        taken = await state.delays.take(now=now + 1, limit=_BATCH, lease=60)
        await state.delays.done(taken)

    # One call at a time: concurrent callers would find smaller batches.
    await _row(server, f"a job is taken and done, {_BATCH} at a time", _FEW, relay, batch=_BATCH, at_a_time=1)


async def _limits(server: Redis, state: RedisState) -> None:
    rate = RateDemand(key="rate", interval=1e-6, burst=1_000_000)
    places = PlaceDemand(key="places", places=1_000_000)

    async def start(number: int) -> None:
        await state.limits.acquire(f"job {number}", [rate], hold=f"{number}", seconds=60, patience=0.1)

    async def hold(number: int) -> None:
        await state.limits.acquire(f"job {number}", [places], hold=f"{number}", seconds=60, patience=0.1)
        await state.limits.release(f"{number}", [places.key], held=0.1)

    await _row(server, "a start of a rate", _COUNT, start)
    await _row(server, "a place is taken and given back", _COUNT, hold)


async def _cancellations(server: Redis, state: RedisState) -> None:
    await _row(
        server,
        "a job is cancelled",
        _COUNT,
        lambda number: state.revocations.revoke(f"{number:036d}", reason="not wanted", ttl=604_800),
    )


async def _row(
    server: Redis,
    what: str,
    count: int,
    call: Callable[[int], Awaitable[object]],
    *,
    batch: int = 1,
    at_a_time: int = _AT_A_TIME,
) -> None:
    before, held = _processor(server), _memory(server)
    numbers = iter(range(count // batch))

    async def work() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(work() for _ in range(at_a_time)))
    each = (_processor(server) - before) / count
    kept = (_memory(server) - held) / count
    print(f"{what:44}{each * 1e6:>12.1f}{1 / each:>12,.0f}{max(kept, 0):>12.0f}", flush=True)


def _processor(server: Redis) -> float:
    return sum(float(_info(server, "cpu")[name]) for name in ("used_cpu_user", "used_cpu_sys"))


def _memory(server: Redis) -> int:
    return int(_info(server, "memory")["used_memory"])


def _info(server: Redis, section: str) -> dict[str, str]:
    text = str(server.command("INFO", section))
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


if __name__ == "__main__":
    raise SystemExit(main())
