"""A Redis Cluster with a killed node: with a replica, and without one."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from redis.crc import key_slot

from taskmq.errors import StateUnavailable
from taskmq_redis import RedisState
from tests.coroutines import run_by
from tests.integration.redis_case import open_redis, record, run
from tests.servers.redis_cluster import SHARE, RedisCluster
from tests.servers.waiting import until

_PATIENCE = timedelta(seconds=30)


@pytest.fixture
def replicated_cluster() -> Iterator[RedisCluster]:
    with RedisCluster(replicas=True) as cluster:
        yield cluster


@pytest.mark.nightly(
    "tests/integration/test_redis_cluster.py::test_without_a_replica_each_call_fails_in_time_until_the_node_returns"
)
@run_by(run)
async def test_calls_and_waits_continue_at_the_replica_of_a_killed_node(replicated_cluster: RedisCluster) -> None:
    async with (
        open_redis(f"{replicated_cluster.url}?timeout=2") as waiter,
        open_redis(f"{replicated_cluster.url}?timeout=2") as state,
    ):
        waiting_for = asyncio.create_task(waiter.results.wait("job", timeout=None))
        owner = replicated_cluster.owner("taskmq:{job}:result")
        await state.results.put(record("before"), ttl=60)
        owner.command("WAIT", "1", "5000")
        owner.kill()

        await _put_at_last(state, "job")

        assert await state.results.get("job") == record("job")
        assert await state.results.get("before") == record("before")
        async with asyncio.timeout(30):
            assert await waiting_for == record("job")


@run_by(run)
async def test_without_a_replica_each_call_fails_in_time_until_the_node_returns() -> None:
    with RedisCluster() as cluster:
        owner = cluster.owner("taskmq:{job}:result")
        async with open_redis(f"{cluster.url}?timeout=1") as state:
            await state.results.put(record("job"), ttl=60)
            owner.kill()

            with pytest.raises(
                StateUnavailable, match=r"node of the cluster|could not be reached|not answer|CLUSTERDOWN"
            ):
                await state.results.get("job")

            owner.restart()
            await _put_at_last(state, "job")
            assert await state.results.get("job") == record("job")


async def _put_at_last(state: RedisState, job: str) -> None:
    """Store a result like workers do: repeat until the state answers."""

    async def is_stored() -> bool:
        with suppress(StateUnavailable):
            await state.results.put(record(job), ttl=60)
            return True
        return False

    await until(is_stored, within=_PATIENCE)


@pytest.mark.campaign
@run_by(run)
async def test_losses_with_a_failed_node_are_counted(replicated_cluster: RedisCluster) -> None:
    """Print how long its slots could not be written, and the number of lost acknowledged results."""
    loop = asyncio.get_running_loop()
    acknowledged: list[str] = []
    last: dict[bool, float] = {}
    outage = {True: 0.0, False: 0.0}
    async with open_redis(f"{replicated_cluster.url}?timeout=2") as state:

        async def write(writer: int) -> None:
            for number in itertools.count():
                job = f"{writer}-{number}"
                is_its = key_slot(f"taskmq:{{{job}}}:result".encode()) < SHARE
                with suppress(StateUnavailable):
                    await state.results.put(record(job), ttl=600)
                    acknowledged.append(job)
                    now = loop.time()
                    outage[is_its] = max(outage[is_its], now - last.get(is_its, now))
                    last[is_its] = now
                if loop.time() > began + 12:
                    return
                await asyncio.sleep(0.002)

        began = loop.time()
        writers = [asyncio.create_task(write(number)) for number in range(20)]

        async def has_begun() -> bool:
            return len(acknowledged) > 5_000

        await until(has_begun)
        replicated_cluster.nodes[0].kill()
        await asyncio.gather(*writers)
        kept = [await state.results.get(job) is not None for job in acknowledged]
    print(
        f"nothing written to its slots for {outage[True]:.2f} s, to the others for {outage[False]:.2f} s; "
        f"{kept.count(False)} of {len(kept)} acknowledged results lost"
    )
    assert kept.count(True) > 5_000
