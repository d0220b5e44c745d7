"""Cost of workflows in Redis, and their leftovers.

$TASKMQ_TEST_FLOW_WIDTH   parallel steps (default 1000; campaign 10,000)
"""

import asyncio
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import cast

import redis.asyncio

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores.flows import FINISH, BegunNode, FlowNode, FlowStore, NodeState, Taken
from taskmq_redis import open_state

WIDTH = int(os.environ.get("TASKMQ_TEST_FLOW_WIDTH", "1000"))


def _in_redis(url: str, test: Callable[[FlowStore, "redis.asyncio.Redis"], Awaitable[None]]) -> str:
    prefix = f"flows-{uuid.uuid4().hex}"

    async def run() -> None:
        state = open_state(f"{url}?prefix={prefix}", BrokerOptions(name="flows"))
        client = redis.asyncio.Redis.from_url(url)
        try:
            await test(state.flows, client)
        finally:
            await state.aclose()
            await client.aclose()

    asyncio.run(run())
    return prefix


async def _calls(client: "redis.asyncio.Redis") -> tuple[int, float]:
    """Return the number of executed scripts, and the server's time for them in microseconds."""
    stats = cast("dict[str, dict[str, float]]", await client.info("commandstats"))
    found = [stats.get(f"cmdstat_{name}", {}) for name in ("evalsha", "eval")]
    return sum(int(one.get("calls", 0)) for one in found), sum(one.get("usec", 0) for one in found)


async def _run(flows: FlowStore, flow_id: str, key: str) -> list[str]:
    """Run one node like a worker; return the nodes that became ready."""
    begun = await flows.start(flow_id, key, owner="a", seconds=60, takes_over=False)
    assert isinstance(begun, BegunNode)
    taken = await flows.end(
        flow_id, key, token=begun.token, state=NodeState.SUCCEEDED, value=b"7", taker=key, lease=60
    )
    assert taken is not None
    return await _all(flows, flow_id, taken, taker=key)


async def _all(flows: FlowStore, flow_id: str, taken: Taken, *, taker: str) -> list[str]:
    found: list[str] = []
    while taken.nodes or taken.is_more:
        found += [node.key for node in taken.nodes]
        taken = await flows.mark_done(flow_id, [node.key for node in taken.nodes], taker=taker, lease=60)
    return found


def test_a_wait_node_without_parents_is_done_at_once_and_releases_the_next_one(redis_url: str) -> None:
    async def test(flows: FlowStore, client: "redis.asyncio.Redis") -> None:
        await flows.create(
            "empty", b"", [FlowNode(key="0", kind="join"), FlowNode(key="1", after=("0",), call=b"x")], ttl=60
        )

        ready = await _all(flows, "empty", await flows.take("empty", taker="s", lease=60), taker="s")

        assert ready == ["1"]
        assert (await flows.states("empty"))["0"] is NodeState.SUCCEEDED

    _in_redis(redis_url, test)


def test_a_step_of_a_chain_costs_three_scripts(redis_url: str) -> None:
    length = 200

    async def test(flows: FlowStore, client: "redis.asyncio.Redis") -> None:
        nodes = [FlowNode(key=str(n), after=(str(n - 1),) if n else (), call=b"x" * 150) for n in range(length)]
        await flows.create("chain", b"", nodes, ttl=60)
        ready = await _all(flows, "chain", await flows.take("chain", taker="s", lease=60), taker="s")
        calls, spent = await _calls(client)
        began = time.perf_counter()
        while ready != [FINISH]:
            ready = await _run(flows, "chain", ready[0])
        took = time.perf_counter() - began
        calls, spent = (await _calls(client))[0] - calls, (await _calls(client))[1] - spent
        print(
            f"chain: {calls / length:.2f} scripts, {spent / length:.0f} us of Redis and {took / length * 1e6:.0f} us "
            f"in all per step; load {os.getloadavg()[0]:.1f}"
        )
        # And a few when the server did not know a script yet.
        assert 3 * length <= calls <= 3 * length + 10

    _in_redis(redis_url, test)


def test_any_event_renews_the_lifetime_of_all_keys_of_a_flow(redis_url: str) -> None:
    async def test(flows: FlowStore, client: "redis.asyncio.Redis") -> None:
        async def has_its_time(what: str, *, ages: bool) -> None:
            names = [name async for name in client.scan_iter(match="*{kept}*", count=1000)]
            assert len(names) >= 4
            for name in names:
                left = await client.pttl(name)
                assert 50_000 < left <= 64_000, (what, name, left)
                if ages:
                    # As after a while.
                    await client.pexpire(name, 20_000)

        for is_old in (False, True):
            nodes = [
                FlowNode(key="a"),
                FlowNode(key="b", after=("a",)),
                FlowNode(key="c", after=("a",)),
                FlowNode(key="m", kind="map", after=("b", "c"), limit=1),
                FlowNode(key="z", after=("m",)),
            ]
            await flows.create("kept", b"", nodes, ttl=60)
            await has_its_time("made", ages=is_old)
            assert await _all(flows, "kept", await flows.take("kept", taker="s", lease=60), taker="s") == ["a"]
            await has_its_time("taken", ages=is_old)
            assert sorted(await _run(flows, "kept", "a")) == ["b", "c"]
            await has_its_time("a", ages=is_old)
            await _run(flows, "kept", "b")
            await has_its_time("b", ages=is_old)
            begun = await flows.start("kept", "c", owner="a", seconds=60, takes_over=False)
            assert isinstance(begun, BegunNode)
            await has_its_time("begun", ages=is_old)
            failed = await flows.end(
                "kept", "c", token=begun.token, state=NodeState.FAILED, value=b"", taker="c", lease=60
            )
            assert failed is not None
            assert await _all(flows, "kept", failed, taker="c") == [FINISH]
            await has_its_time("failed", ages=is_old)
            assert await flows.redrive("kept") == 3
            await has_its_time("driven anew", ages=is_old)
            await _all(flows, "kept", await flows.take("kept", taker="s", lease=60), taker="s")
            assert await _run(flows, "kept", "c") == ["m"]
            await flows.expand("kept", "m", [b"y"] * 3, first=0, total=3)
            await has_its_time("expanded", ages=is_old)
            ready = await _all(flows, "kept", await flows.take("kept", taker="s", lease=60), taker="s")
            while ready:
                await has_its_time(f"{ready}", ages=is_old)
                ready = [key for key in await _run(flows, "kept", ready[0]) if key != FINISH]
            await has_its_time("over", ages=is_old)
            await client.flushdb()

    _in_redis(redis_url, test)


def test_a_wide_flow_is_processed_in_small_pieces_and_every_key_expires(redis_url: str) -> None:
    async def test(flows: FlowStore, client: "redis.asyncio.Redis") -> None:
        middle = [f"m{number}" for number in range(WIDTH)]
        nodes = [
            FlowNode(key="first"),
            *(FlowNode(key=key, after=("first",), call=b"x" * 150) for key in middle),
            FlowNode(key="map", kind="map", after=("first",), limit=50),
            FlowNode(key="last", after=(*middle, "map")),
        ]
        await client.config_set("slowlog-log-slower-than", 1000)
        await client.config_set("slowlog-max-len", 2000)
        await client.slowlog_reset()
        began = time.perf_counter()
        await flows.create("wide", b"", nodes, ttl=60)
        made = time.perf_counter() - began
        await _all(flows, "wide", await flows.take("wide", taker="s", lease=60), taker="s")
        calls, spent = await _calls(client)
        began = time.perf_counter()
        ready = await _run(flows, "wide", "first")
        out = time.perf_counter() - began
        assert sorted(ready) == sorted([*middle, "map"])
        await flows.expand("wide", "map", [b"y"] * 300, first=0, total=300)
        ready += await _all(flows, "wide", await flows.take("wide", taker="s", lease=60), taker="s")
        ready.remove("map")
        done: list[str] = []
        began = time.perf_counter()
        while ready:
            some, ready = ready[:200], ready[200:]
            for found in await asyncio.gather(*(_run(flows, "wide", key) for key in some)):
                ready += [key for key in found if key not in ("last", FINISH)]
                done += [key for key in found if key in ("last", FINISH)]
        joined = time.perf_counter() - began
        assert done == ["last"]
        slow = await client.slowlog_get(2000)
        slowest = max((entry["duration"] for entry in slow if entry["command"].startswith(b"EVALSHA")), default=0)
        calls, spent = (await _calls(client))[0] - calls, (await _calls(client))[1] - spent
        steps = WIDTH + 301
        print(
            f"{WIDTH} beside each other: made in {made:.2f} s, handed out in {out:.2f} s, joined in {joined:.2f} s; "
            f"{calls / steps:.2f} scripts and {spent / steps:.0f} us of Redis per step; the longest script took "
            f"{slowest / 1000:.1f} ms; load {os.getloadavg()[0]:.1f}"
        )
        await client.config_set("slowlog-log-slower-than", 10_000)
        names = [name async for name in client.scan_iter(match="*{wide}*", count=1000)]
        assert len(names) > 8
        for name in names:
            assert 0 < await client.pttl(name) <= 64_000, name

    prefix = _in_redis(redis_url, test)
    assert prefix
