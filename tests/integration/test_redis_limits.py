"""Leftovers of limits in Redis."""

import asyncio

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import Demand, PlaceDemand, RateDemand
from taskmq_redis import open_state
from tests.servers import Redis


def _keys(server: Redis) -> dict[str, int]:
    """Return the existing keys, and their lifetimes in milliseconds."""
    names = server.command("KEYS", "*")
    assert isinstance(names, list)
    found: dict[str, int] = {}
    for name in names:
        left = server.command("PTTL", str(name))
        assert isinstance(left, int)
        found[str(name)] = left
    return found


def test_every_key_of_a_limit_has_one_hash_tag_and_a_time_to_live(redis_server: Redis, redis_url: str) -> None:
    rate, places = RateDemand(key="rate:a {b}", interval=60.0), PlaceDemand(key="places:a", places=1)

    async def use() -> None:
        state = open_state(redis_url, BrokerOptions(name="test"))
        demands: list[Demand] = [rate, places]
        for number in range(5):
            for each in ([rate], [places], demands):
                await state.limits.acquire(f"job {number}", each, hold=f"{number}", seconds=30, patience=0)
        await state.limits.renew([("0", places)], seconds=30)
        await state.limits.release("0", [places.key], held=1.0)
        await state.limits.acquire("job 9", [places], hold="9", seconds=30, patience=0)
        await state.limits.withdraw("job 1", [rate.key, places.key])
        await state.aclose()

    asyncio.run(use())

    keys = _keys(redis_server)
    assert {name.rpartition(":")[2] for name in keys} >= {"facts", "line", "order"}
    assert all(name.startswith("taskmq:{limits}:") for name in keys)
    assert all(0 < left <= 2 * 3_600_000 for left in keys.values()), keys


def test_expired_permits_leave_only_a_short_memory(redis_server: Redis, redis_url: str) -> None:
    places = PlaceDemand(key="places:a", places=1)

    async def use() -> None:
        state = open_state(redis_url, BrokerOptions(name="test"))
        await state.limits.acquire("job", [places], hold="a", seconds=30, patience=0)
        await state.limits.acquire("other", [places], hold="b", seconds=30, patience=0)
        await state.limits.withdraw("other", [places.key])
        await state.limits.release("a", [places.key], held=1.0)
        await state.aclose()

    asyncio.run(use())

    assert [*_keys(redis_server)] == ["taskmq:{limits}:places:a:facts"]
