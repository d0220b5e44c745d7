"""A state whose primary is named by sentinels: killed, frozen, demoted and restored, and missing sentinels."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta

import pytest

from taskmq.errors import StateUnavailable
from tests.coroutines import run_by
from tests.integration.redis_case import answers, open_redis, record, run
from tests.servers import Redis, RedisSentinel
from tests.servers.waiting import eventually, until

_PATIENCE = timedelta(seconds=30)


class Ensemble:
    """A primary with a replica, and three sentinels that know each other."""

    def __init__(self, stack: ExitStack) -> None:
        self.primary = stack.enter_context(Redis())
        self.replica = stack.enter_context(Redis())
        self.replica.command("REPLICAOF", "127.0.0.1", str(self.primary.port))
        eventually(self._is_replicated, "the replica following the primary", within=_PATIENCE)
        self.sentinels = [stack.enter_context(RedisSentinel(self.primary, quorum=2)) for _ in range(3)]
        eventually(self._is_complete, "the sentinels finding each other and the replica", within=_PATIENCE)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis://{hosts}/0?sentinel=main&timeout=2"

    def _is_replicated(self) -> bool:
        return "master_link_status:up" in str(self.replica.command("INFO", "replication"))

    def _is_complete(self) -> bool:
        return all(
            sentinel.count_known("REPLICAS") == 1 and sentinel.count_known("SENTINELS") == 2
            for sentinel in self.sentinels
        )


@pytest.fixture
def ensemble() -> Iterator[Ensemble]:
    with ExitStack() as stack:
        yield Ensemble(stack)


@run_by(run)
async def test_calls_and_waits_continue_at_the_new_primary_after_a_kill(ensemble: Ensemble) -> None:
    async with open_redis(ensemble.url) as waiter, open_redis(ensemble.url) as state:
        waiting_for = asyncio.create_task(waiter.results.wait("after", timeout=None))
        await state.results.put(record("before"), ttl=60)
        assert ensemble.primary.command("WAIT", "1", "5000") == 1
        # Its first read needs the primary; a wait that listens survives the kill.
        await until(lambda: bool(ensemble.primary.command("PUBSUB", "CHANNELS", "taskmq:*")))
        ensemble.primary.kill()
        await answers(state)

        await state.results.put(record("after"), ttl=60)

        assert ensemble.replica.command("EXISTS", "taskmq:{after}:result") == 1
        assert await state.results.get("before") == record("before")
        async with asyncio.timeout(20):
            assert await waiting_for == record("after")


@pytest.mark.nightly(
    "tests/integration/test_redis_sentinel.py::test_calls_and_waits_continue_at_the_new_primary_after_a_kill"
)
@run_by(run)
async def test_calls_go_to_the_new_primary_while_the_old_one_hangs(ensemble: Ensemble) -> None:
    async with open_redis(ensemble.url) as state:
        await state.results.put(record("before"), ttl=60)
        ensemble.primary.pause()
        try:
            await answers(state)
            await state.results.put(record("after"), ttl=60)
        finally:
            ensemble.primary.resume()

        assert ensemble.replica.command("EXISTS", "taskmq:{after}:result") == 1


@pytest.mark.nightly(
    "tests/integration/test_redis_sentinel.py::test_calls_and_waits_continue_at_the_new_primary_after_a_kill"
)
@run_by(run)
async def test_writes_go_to_the_new_primary_once_the_old_one_knows_of_it(ensemble: Ensemble) -> None:
    async with open_redis(ensemble.url) as state:
        await state.results.put(record("before"), ttl=60)
        ensemble.sentinels[0].command("SENTINEL", "FAILOVER", "main")

        async def arrives() -> bool:
            # Until the old primary is demoted, it accepts writes that it loses then.
            with suppress(StateUnavailable):
                await state.results.put(record("after"), ttl=60)
            return ensemble.replica.command("EXISTS", "taskmq:{after}:result") == 1

        await until(arrives, within=_PATIENCE)


@pytest.mark.nightly(
    "tests/integration/test_redis_sentinel.py::test_calls_and_waits_continue_at_the_new_primary_after_a_kill"
)
@run_by(run)
async def test_one_working_sentinel_is_enough_and_errors_name_each(ensemble: Ensemble) -> None:
    gone, hung, alive = ensemble.sentinels
    gone.kill()
    hung.pause()
    try:
        async with open_redis(ensemble.url) as state:
            await state.results.put(record(), ttl=60)
        async with open_redis(ensemble.url.replace("sentinel=main", "sentinel=other")) as state:
            with pytest.raises(StateUnavailable, match="no sentinel names a primary") as caught:
                await state.results.get("job")
    finally:
        hung.resume()

    assert caught.value.is_certain
    for words in (f":{gone.port}: ", f":{hung.port} does not answer", f":{alive.port} knows no 'other'"):
        assert words in str(caught.value)


@pytest.mark.campaign
@pytest.mark.parametrize("fault", ["kill", "failover"])
@run_by(run)
async def test_losses_of_a_failover_are_counted_and_writing_continues(ensemble: Ensemble, fault: str) -> None:
    """Print how long nothing could be written, and the number of acknowledged results lost afterwards."""
    loop = asyncio.get_running_loop()
    acknowledged: list[str] = []
    last, outage = loop.time(), 0.0
    async with open_redis(ensemble.url) as state:

        async def write(writer: int) -> None:
            nonlocal last, outage
            for number in itertools.count():
                job = f"{writer}-{number}"
                with suppress(StateUnavailable):
                    await state.results.put(record(job), ttl=600)
                    acknowledged.append(job)
                    outage, last = max(outage, loop.time() - last), loop.time()
                if loop.time() > began + 15:
                    return
                await asyncio.sleep(0.002)

        began = loop.time()
        writers = [asyncio.create_task(write(number)) for number in range(20)]

        async def has_begun() -> bool:
            return len(acknowledged) > 5_000

        await until(has_begun, within=_PATIENCE)
        if fault == "kill":
            ensemble.primary.kill()
        else:
            ensemble.sentinels[0].command("SENTINEL", "FAILOVER", "main")
        await asyncio.gather(*writers)
        kept = [await state.results.get(job) is not None for job in acknowledged]
    print(
        f"{fault}: nothing written for {outage:.2f} s, {kept.count(False)} of {len(kept)} acknowledged results lost"
    )
    assert kept.count(True) > 5_000
