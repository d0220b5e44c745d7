"""Limits and locks while Redis is paused, killed, emptied, evicting, full and failed over: the page is correct."""

import asyncio
import contextlib
import contextvars
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

import pytest

from taskmq import Concurrency, Job, LockLost, LockTimeout, RateLimit, StateUnavailable, TaskMQ
from taskmq.contracts.stores import PlaceDemand
from taskmq.model.outcome import Outcome, Snoozed
from taskmq.testing.runner import eventually
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt, Permit
from taskmq.worker.guards.limits import LimitsGuard
from taskmq.worker.host.process_facts import process_identity
from tests.integration.redis_case import answers
from tests.servers import Redis
from tests.unit.app_kit import new_url

LEASE = 1.5
PATIENCE = 40.0
HOLDS = "taskmq:{limits}:places:pack:holds"
# The same tests remain in the gate with a Redis that is killed.
_LATER = pytest.mark.nightly("tests/integration/test_limit_faults.py")


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start a server for the test."""
    with Redis() as server:
        yield server


@pytest.fixture
def forgetful() -> Iterator[Redis]:
    """Start a server without persistence."""
    with Redis(appendonly=False) as server:
        yield server


class Passages(list[tuple[str, object]]):
    """Records the calls of the limits' gate: job and result."""

    async def wait_for(self, job: Job[None], answer: object, *, times: int = 1) -> None:
        async def count() -> bool:
            return self.count((job.id, answer)) >= times

        await eventually(count, True, within=PATIENCE)

    async def wait_for_call(self, job: Job[None]) -> None:
        async def look() -> bool:
            return any(job_id == job.id for job_id, _ in self)

        await eventually(look, True, within=PATIENCE)


@pytest.fixture
def passages(monkeypatch: pytest.MonkeyPatch) -> Passages:
    passages = Passages()
    enter = LimitsGuard.acquire

    async def watch_acquire(gate: LimitsGuard, attempt: Attempt) -> Permit | Outcome:
        try:
            answer = await enter(gate, attempt)
        except StateUnavailable:
            passages.append((attempt.job_id, StateUnavailable))
            raise
        passages.append((attempt.job_id, Snoozed if isinstance(answer, Snoozed) else Permit))
        return answer

    monkeypatch.setattr(LimitsGuard, "acquire", watch_acquire)
    return passages


class Shop:
    """Tasks with limits; those with permits wait at a gate."""

    def __init__(self, url: str) -> None:
        options = "&timeout=0.5" if "?" in url else "?timeout=0.5"
        self.app = TaskMQ(new_url(), state=url + options)
        self.began: list[str] = []
        self.starts: list[float] = []
        self.inside = 0
        self.most = 0
        self.open = asyncio.Event()

        async def stay(name: str) -> None:
            self.began.append(name)
            self.inside += 1
            self.most = max(self.most, self.inside)
            await self.open.wait()
            self.inside -= 1

        @self.app.task(name="pack", concurrency=2)
        async def pack(name: str) -> None:
            await stay(name)

        @self.app.task(name="wrap", concurrency=Concurrency(1, on_failure="open"))
        async def wrap(name: str) -> None:
            await stay(name)

        @self.app.task(name="call", rate_limit="20/s")
        async def call() -> None:
            self.starts.append(time.monotonic())

        @self.app.task(name="ring", rate_limit=RateLimit("1/h", on_failure="open"))
        async def ring() -> None:
            self.starts.append(time.monotonic())

        self.pack = pack
        self.wrap = wrap
        self.call = call
        self.ring = ring

    async def wait_for_runs(self, *names: str) -> None:
        async def look() -> bool:
            return set(names) <= set(self.began)

        await eventually(look, True, within=PATIENCE)


@contextlib.asynccontextmanager
async def working(shop: Shop, *, lease: float = LEASE) -> AsyncGenerator[Worker, None]:
    worker = Worker(shop.app, WorkerConfig(lease=lease, concurrency=16))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    try:
        yield worker
    finally:
        shop.open.set()
        worker.requeue_now()
        await asyncio.wait((running,))


async def back(redis: Redis, shop: Shop) -> None:
    """Restart a killed server, and wait until it answers."""
    redis.restart()
    state = shop.app.sessions.current().state
    assert state is not None
    await answers(state)


def play(url: str, test: Callable[[Shop], Awaitable[None]]) -> None:
    async def main() -> None:
        shop = Shop(url)
        async with asyncio.timeout(PATIENCE + 10), shop.app:
            await test(shop)

    asyncio.run(main())


async def finish(*jobs: Job[None]) -> None:
    await asyncio.gather(*(job.aresult(timeout=PATIENCE) for job in jobs))


async def holds(redis: Redis, expected: int, *, key: str = HOLDS) -> None:
    async def count() -> bool:
        return redis.command("ZCARD", key) == expected

    await eventually(count, True, within=PATIENCE)


def empty(redis: Redis) -> None:
    redis.command("FLUSHALL")


def evict(redis: Redis) -> None:
    redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    redis.command("CONFIG", "SET", "maxmemory", "1")
    redis.command("CONFIG", "SET", "maxmemory", "0")
    assert redis.command("DBSIZE") == 0


def forget(redis: Redis) -> None:
    redis.kill()
    redis.restart()


LOSSES = [
    pytest.param(forget, id="killed"),
    pytest.param(empty, id="emptied", marks=_LATER),
    pytest.param(evict, id="evicted", marks=_LATER),
]


def test_no_permit_is_taken_while_redis_is_paused_and_then_it_is(redis: Redis, passages: Passages) -> None:
    async def test(shop: Shop) -> None:
        async with working(shop):
            first = await shop.pack.asend("first")
            await shop.wait_for_runs("first")
            redis.pause()
            try:
                second = await shop.pack.asend("second")
                await passages.wait_for(second, StateUnavailable, times=2)
                assert shop.began == ["first"]
            finally:
                redis.resume()
            # Permits possibly acquired by unanswered calls are free again.
            await shop.wait_for_runs("second")
            third = await shop.pack.asend("third")
            await passages.wait_for(third, Snoozed)
            shop.open.set()
            await finish(first, second, third)
        assert shop.most == 2
        await holds(redis, 0)

    play(redis.url, test)


def test_permits_stay_with_their_runs_over_a_restart_of_redis(redis: Redis, passages: Passages) -> None:
    async def test(shop: Shop) -> None:
        async with working(shop, lease=60):
            jobs = [await shop.pack.asend(name) for name in ("a", "b")]
            await shop.wait_for_runs("a", "b")
            redis.kill()
            third = await shop.pack.asend("c")
            await passages.wait_for(third, StateUnavailable)
            await back(redis, shop)
            await passages.wait_for(third, Snoozed)
            shop.open.set()
            await finish(*jobs, third)
        assert shop.most == 2
        await holds(redis, 0)

    play(redis.url, test)


@pytest.mark.nightly(
    "tests/integration/test_limit_faults.py::test_permits_stay_with_their_runs_over_a_restart_of_redis"
)
def test_a_permit_that_could_not_be_released_is_released_later(redis: Redis, passages: Passages) -> None:
    async def test(shop: Shop) -> None:
        async with working(shop, lease=600):
            jobs = [await shop.pack.asend(name) for name in ("a", "b")]
            await shop.wait_for_runs("a", "b")
            redis.kill()
            third = await shop.pack.asend("c")
            await passages.wait_for(third, StateUnavailable)
            # It ends while the state is down.
            shop.open.set()

            async def inside() -> int:
                return shop.inside

            await eventually(inside, 0, within=PATIENCE)
            await back(redis, shop)
            # Long before the lease is over.
            await finish(*jobs, third)
        await holds(redis, 0)

    play(redis.url, test)


@pytest.mark.parametrize("lose", LOSSES)
def test_runs_take_their_permits_again_after_redis_lost_them(
    forgetful: Redis, passages: Passages, lose: Callable[[Redis], None]
) -> None:
    async def test(shop: Shop) -> None:
        async with working(shop):
            jobs = [await shop.pack.asend(name) for name in ("a", "b")]
            await shop.wait_for_runs("a", "b")
            lose(forgetful)
            # Within a third of the lease.
            await holds(forgetful, 2)
            third = await shop.pack.asend("c")
            await passages.wait_for(third, Snoozed)
            shop.open.set()
            await finish(*jobs, third)
        assert shop.most == 2
        await holds(forgetful, 0)

    play(forgetful.url, test)


def test_permits_of_a_dead_process_are_free_once_redis_returns(redis: Redis, passages: Passages) -> None:
    program = "from taskmq.worker.host.process_facts import process_identity; print(process_identity())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() != process_identity()

    async def test(shop: Shop) -> None:
        state = shop.app.sessions.current().state
        assert state is not None
        places = PlaceDemand(key="places:pack", places=2)
        for number in range(2):
            hold = f"{ended.stdout.strip()}/{number}"
            assert (
                await state.limits.acquire(f"theirs {number}", [places], hold=hold, seconds=3600, patience=0)
            ).granted
        redis.kill()
        async with working(shop):
            job = await shop.pack.asend("a")
            await passages.wait_for(job, StateUnavailable)
            await back(redis, shop)
            shop.open.set()
            await finish(job)

    play(redis.url, test)


@pytest.mark.nightly(
    "tests/integration/test_limit_faults.py::test_permits_of_a_dead_process_are_free_once_redis_returns"
)
def test_permits_of_a_vanished_worker_are_free_after_their_lease(redis: Redis, passages: Passages) -> None:
    async def test(shop: Shop) -> None:
        state = shop.app.sessions.current().state
        assert state is not None
        places = PlaceDemand(key="places:pack", places=2)
        for number in range(2):
            await state.limits.acquire(
                f"theirs {number}", [places], hold=f"elsewhere/{number}", seconds=LEASE, patience=0
            )
        async with working(shop):
            job = await shop.pack.asend("a")
            await passages.wait_for(job, Snoozed)
            redis.kill()
            await back(redis, shop)
            shop.open.set()
            await finish(job)

    play(redis.url, test)


@pytest.mark.nightly("tests/integration/test_limit_faults.py::test_a_lock_is_kept_and_released_while_redis_is_full")
def test_permits_are_kept_and_released_on_a_full_redis(redis: Redis, passages: Passages) -> None:
    async def test(shop: Shop) -> None:
        async with working(shop):
            jobs = [await shop.pack.asend(name) for name in ("a", "b")]
            await shop.wait_for_runs("a", "b")
            third = await shop.pack.asend("c")
            await passages.wait_for(third, Snoozed)
            redis.command("CONFIG", "SET", "maxmemory", "1")
            call = await shop.call.asend()
            await passages.wait_for(call, StateUnavailable)
            assert shop.starts == []
            # Longer than the lease, and the permits are held.
            before = float(str(redis.command("ZSCORE", HOLDS, _hold(redis))))

            async def renewals() -> bool:
                return float(str(redis.command("ZSCORE", HOLDS, _hold(redis)))) > before + 2e6 * LEASE

            await eventually(renewals, True, within=PATIENCE)
            assert shop.began == ["a", "b"]
            shop.open.set()
            await holds(redis, 0)
            redis.command("CONFIG", "SET", "maxmemory", "0")
            await finish(*jobs, third, call)
        assert shop.most == 2

    play(redis.url, test)


def _hold(redis: Redis) -> str:
    names = redis.command("ZRANGE", HOLDS, "0", "0")
    assert isinstance(names, list)
    return str(names[0])


@pytest.mark.nightly(
    "tests/integration/test_redis_sentinel.py::test_calls_and_waits_continue_at_the_new_primary_after_a_kill"
)
def test_permits_survive_a_failover_to_a_replica(redis: Redis, passages: Passages) -> None:
    async def test(shop: Shop, other: Redis) -> None:
        async with working(shop, lease=60):
            jobs = [await shop.pack.asend(name) for name in ("a", "b")]
            await shop.wait_for_runs("a", "b")
            other.command("REPLICAOF", "127.0.0.1", str(redis.port))
            await holds(other, 2)
            redis.kill()
            other.command("REPLICAOF", "NO", "ONE")
            third = await shop.pack.asend("c")
            await passages.wait_for(third, Snoozed)
            shop.open.set()
            await finish(*jobs, third)
        assert shop.most == 2
        await holds(other, 0)

    with Redis() as other:
        play(f"redis://127.0.0.1:{redis.port},127.0.0.1:{other.port}/0", lambda shop: test(shop, other))


def test_optional_limits_pass_all_jobs_while_redis_is_down_and_apply_again_after(
    redis: Redis, passages: Passages
) -> None:
    async def test(shop: Shop) -> None:
        async with working(shop):
            first = await shop.wrap.asend("a")
            await shop.wait_for_runs("a")
            redis.kill()
            away = [await shop.wrap.asend(name) for name in ("b", "c")]
            rings = [await shop.ring.asend() for _ in range(5)]
            await shop.wait_for_runs("b", "c")

            async def count_rings() -> int:
                return len(shop.starts)

            await eventually(count_rings, 5, within=PATIENCE)
            await back(redis, shop)
            # It is asked again once a second.
            asked = await shop.ring.asend()
            while (asked.id, Snoozed) not in passages:
                asked = await shop.ring.asend()
                await passages.wait_for_call(asked)
            # Its permit is renewed, or acquired again.
            await holds(redis, 1, key="taskmq:{limits}:places:wrap:holds")
            last = await shop.wrap.asend("d")
            await passages.wait_for(last, Snoozed)
            assert shop.inside == 3
            shop.open.set()
            await finish(first, *away, *rings, last)

    play(redis.url, test)


@pytest.mark.parametrize(
    "fault", [pytest.param("paused", marks=_LATER), "killed", pytest.param("emptied", marks=_LATER)]
)
def test_a_rate_is_not_exceeded_over_a_fault_of_redis_and_every_job_runs(
    redis: Redis, passages: Passages, fault: str
) -> None:
    rate, burst_time = 20.0, 0.25

    async def test(shop: Shop) -> None:
        async with working(shop):
            for _ in range(30):
                await shop.call.asend()

            async def some() -> bool:
                return len(shop.starts) >= 8

            await eventually(some, True, within=PATIENCE)
            match fault:
                case "paused":
                    redis.pause()
                    late = await shop.call.asend()
                    await passages.wait_for(late, StateUnavailable)
                    redis.resume()
                case "killed":
                    redis.kill()
                    late = await shop.call.asend()
                    await passages.wait_for(late, StateUnavailable)
                    await back(redis, shop)
                case _:
                    empty(redis)
                    late = await shop.call.asend()

            async def all_of_them() -> int:
                return len(shop.starts)

            await eventually(all_of_them, 31, within=PATIENCE)
            # The results of the others were among the lost data.
            await finish(late)
        # Emptied it starts anew, once. A granted start waits in its slot for a moment, so some are closer together.
        spare = 2 + (rate * burst_time + 1) * (fault == "emptied")
        starts = sorted(shop.starts)
        for first in range(len(starts)):
            for last in range(first, len(starts)):
                allowed = (starts[last] - starts[first] + burst_time) * rate * 1.25 + 1 + spare
                assert last - first + 1 <= allowed, (first, last, starts)

    play(redis.url, test)


def test_a_lock_survives_a_restart_of_redis(redis: Redis) -> None:
    async def test(shop: Shop) -> None:
        async with shop.app.lock("account:7", lease=30) as lock:
            redis.kill()
            await back(redis, shop)
            with pytest.raises(LockTimeout):
                await _with_another_task(shop, timeout=0)
            lock.check()
            token = lock.token
        assert await _with_another_task(shop, timeout=0) > token

    play(redis.url, test)


@pytest.mark.nightly("tests/integration/test_limit_faults.py::test_a_lock_survives_a_restart_of_redis")
def test_a_lock_survives_a_failover_to_a_replica(redis: Redis) -> None:
    async def test(shop: Shop, other: Redis) -> None:
        async with shop.app.lock("account:7", lease=LEASE) as lock:
            token = lock.token
            other.command("REPLICAOF", "127.0.0.1", str(redis.port))

            async def is_replicated() -> bool:
                return other.command("DBSIZE") == 1

            await eventually(is_replicated, True, within=PATIENCE)
            redis.kill()
            other.command("REPLICAOF", "NO", "ONE")
            with pytest.raises(LockTimeout):
                await _with_another_task(shop, timeout=0)
            lock.check()
            waits = asyncio.create_task(_with_another_task(shop, timeout=PATIENCE))
        assert await waits > token

    with Redis() as other:
        play(f"redis://127.0.0.1:{redis.port},127.0.0.1:{other.port}/0", lambda shop: test(shop, other))


async def _with_another_task(shop: Shop, *, timeout: float, lease: float = 30) -> int:
    async def hold() -> int:
        async with shop.app.lock("account:7", timeout=timeout, lease=lease) as lock:
            return lock.token

    return await asyncio.create_task(hold(), context=contextvars.Context())


@pytest.mark.parametrize("lose", LOSSES)
def test_a_lock_that_redis_lost_is_lost_and_its_block_raises(forgetful: Redis, lose: Callable[[Redis], None]) -> None:
    async def test(shop: Shop) -> None:
        async def hold() -> None:
            async with shop.app.lock("account:7", lease=LEASE) as lock:
                token = lock.token
                lose(forgetful)
                later = await _with_another_task(shop, timeout=PATIENCE)
                assert later > token
                assert await lock.wait_lost()

        with pytest.raises(LockLost):
            await hold()

    play(forgetful.url, test)


@pytest.mark.nightly(
    "tests/integration/test_limit_faults.py::test_a_lock_that_redis_lost_is_lost_and_its_block_raises"
)
def test_a_lock_is_lost_after_a_long_redis_outage_and_waiters_are_told(redis: Redis) -> None:
    async def test(shop: Shop) -> None:
        async def hold() -> None:
            async with shop.app.lock("account:7", lease=LEASE) as lock:
                waits = asyncio.create_task(_with_another_task(shop, timeout=PATIENCE, lease=LEASE))
                redis.pause()
                try:
                    with pytest.raises(StateUnavailable):
                        await waits
                    assert await lock.wait_lost()
                finally:
                    redis.resume()

        began = time.monotonic()
        with pytest.raises(LockLost):
            await hold()
        assert time.monotonic() - began > LEASE
        # Requests during the outage may have been granted: that ends with its lease.
        assert await _with_another_task(shop, timeout=PATIENCE)

    play(redis.url, test)


def test_a_lock_is_kept_and_released_while_redis_is_full(redis: Redis) -> None:
    async def test(shop: Shop) -> None:
        async with shop.app.lock("account:7", lease=LEASE) as lock:
            token = lock.token
            redis.command("CONFIG", "SET", "maxmemory", "1")
            until = float(str(redis.command("HGET", "taskmq:{lock:account:7}:lease", "until")))

            async def renewals() -> bool:
                left = redis.command("HGET", "taskmq:{lock:account:7}:lease", "until")
                return float(str(left)) > until + 1500 * LEASE

            await eventually(renewals, True, within=PATIENCE)
            lock.check()
            # Only writes that add data are refused.
            with pytest.raises(LockTimeout):
                await _with_another_task(shop, timeout=0)
        assert redis.command("HGET", "taskmq:{lock:account:7}:lease", "until") == "0"
        with pytest.raises(StateUnavailable, match=r"(?i)memory"):
            await _with_another_task(shop, timeout=0)
        redis.command("CONFIG", "SET", "maxmemory", "0")
        assert await _with_another_task(shop, timeout=0) > token

    play(redis.url, test)
