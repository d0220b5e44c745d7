"""Idempotency keys while Redis is paused, killed and emptied: no possible duplicate runs, and no job is lost."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from taskmq import Context, Job, StateUnavailable, TaskMQ
from taskmq.errors import BrokerUnavailable
from taskmq.model.outcome import Outcome, Snoozed
from taskmq.model.states import JobState
from taskmq.testing.runner import eventually
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt, Permit
from taskmq.worker.guards.idempotency import IdempotencyGuard
from tests.servers import Redis
from tests.servers.waiting import until
from tests.unit.app_kit import new_url

LEASE = 1.5
PATIENCE = 40.0


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start a server for the test."""
    with Redis() as server:
        yield server


class Passages(list[tuple[str, str, object]]):
    """Records the calls of the keys' gate: job and result."""

    async def wait_for(self, asked: str, job: Job[Any], answer: object, *, times: int = 1) -> None:
        async def count() -> bool:
            return self.count((asked, job.id, answer)) >= times

        await eventually(count, True, within=PATIENCE)


@pytest.fixture
def passages(monkeypatch: pytest.MonkeyPatch) -> Passages:
    passages = Passages()
    enter, leave = IdempotencyGuard.acquire, IdempotencyGuard.release

    async def watched_acquire(gate: IdempotencyGuard, attempt: Attempt) -> Permit | Outcome:
        try:
            answer = await enter(gate, attempt)
        except StateUnavailable:
            passages.append(("acquire", attempt.job_id, StateUnavailable))
            raise
        passages.append(("acquire", attempt.job_id, type(answer)))
        return answer

    async def watched_release(gate: IdempotencyGuard, claim: Any, outcome: Outcome, record: Any) -> bool:
        try:
            counts = await leave(gate, claim, outcome, record)
        except StateUnavailable:
            passages.append(("release", claim.attempt.job_id, StateUnavailable))
            raise
        passages.append(("release", claim.attempt.job_id, counts))
        return counts

    monkeypatch.setattr(IdempotencyGuard, "acquire", watched_acquire)
    monkeypatch.setattr(IdempotencyGuard, "release", watched_release)
    return passages


class Till:
    """A task with a key, whose runs wait at a gate."""

    def __init__(self, url: str) -> None:
        self.app = TaskMQ(new_url(), state=f"{url}?timeout=0.5")
        self.runs: list[tuple[str, int]] = []
        self.open = asyncio.Event()

        @self.app.task(idempotency_key="order")
        async def pay(context: Context, order: str) -> str:
            self.runs.append((context.job_id, context.fencing_token))
            await self.open.wait()
            return f"paid by {context.job_id}"

        @self.app.task(unique="shop")
        async def sync(shop: str) -> None: ...

        self.pay = pay
        self.sync = sync


@asynccontextmanager
async def working(till: Till, *, lease: float = LEASE) -> AsyncGenerator[None, None]:
    worker = Worker(till.app, WorkerConfig(lease=lease, concurrency=8))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    try:
        yield
    finally:
        worker.requeue_now()
        await asyncio.wait((running,))


def play(redis: Redis, test: Callable[[Till], Awaitable[None]]) -> None:
    async def main() -> None:
        till = Till(redis.url)
        async with asyncio.timeout(PATIENCE + 10), till.app:
            await test(till)

    asyncio.run(main())


async def result(job: Job[str]) -> str:
    return await job.aresult(timeout=PATIENCE)


async def count(till: Till, runs: int) -> None:
    await until(lambda: len(till.runs) >= runs, f"{runs} runs")


@pytest.mark.nightly(
    "tests/integration/test_idempotency_faults.py::test_a_run_during_a_kill_of_redis_completes_once_redis_returns"
)
def test_no_job_with_a_key_starts_while_redis_is_paused_and_then_it_does(redis: Redis, passages: Passages) -> None:
    async def test(till: Till) -> None:
        till.open.set()
        async with working(till):
            assert await result(await till.pay.asend("0"))
            redis.pause()
            try:
                job = await till.pay.asend("1")
                await passages.wait_for("acquire", job, StateUnavailable, times=2)
                assert len(till.runs) == 1
            finally:
                redis.resume()
            assert await result(job) == f"paid by {job.id}"

    play(redis, test)


def test_a_run_during_a_kill_of_redis_completes_once_redis_returns(redis: Redis, passages: Passages) -> None:
    async def test(till: Till) -> None:
        async with working(till):
            first = await till.pay.asend("1")
            await count(till, 1)
            redis.kill()
            till.open.set()
            await passages.wait_for("release", first, StateUnavailable)
            redis.restart()
            second = await till.pay.asend("1")
            assert await result(first) == await result(second) == f"paid by {first.id}"
        assert len(till.runs) == 1

    play(redis, test)


@pytest.mark.nightly(
    "tests/integration/test_idempotency_faults.py::test_two_workers_with_one_key_after_redis_was_emptied_have_one_result"
)
def test_a_key_is_held_again_after_redis_was_emptied(redis: Redis, passages: Passages) -> None:
    async def test(till: Till) -> None:
        async with working(till):
            first = await till.pay.asend("1")
            await count(till, 1)
            redis.flush()

            async def keys() -> int:
                found = redis.command("KEYS", "*:claim")
                assert isinstance(found, list)
                return len(found)

            # The next renewal.
            await eventually(keys, 1, within=PATIENCE)
            second = await till.pay.asend("1")
            await passages.wait_for("acquire", second, Snoozed, times=3)
            till.open.set()
            assert await result(first) == await result(second) == f"paid by {first.id}"
        assert len(till.runs) == 1

    play(redis, test)


def test_two_workers_with_one_key_after_redis_was_emptied_have_one_result(redis: Redis, passages: Passages) -> None:
    async def test(till: Till) -> None:
        # Another broker with the same state: as if another worker had received the second job.
        other = Till(redis.url)
        async with working(till, lease=60), working(other, lease=60):
            first = await till.pay.asend("1")
            await count(till, 1)
            # Before the next renewal.
            redis.flush()
            second = await other.pay.asend("1")
            await count(other, 1)
            till.open.set()
            await passages.wait_for("release", first, False)
            assert await first.astate() == JobState.QUEUED
            other.open.set()
            answers = {await result(first), await result(second)}
        # The run with the larger token counts.
        assert other.runs[0][1] > till.runs[0][1]
        assert answers == {f"paid by {second.id}"}
        assert len(till.runs) == len(other.runs) == 1

    play(redis, test)


def test_large_results_of_keyed_jobs_are_not_in_redis(redis: Redis, tmp_path: Path) -> None:
    async def test(till: Till) -> None:
        app = TaskMQ(new_url(), state=redis.url, results_at=f"file://{tmp_path}", result_inline="1K")
        till.app = app
        runs: list[str] = []

        @app.task(idempotency_key="order")
        async def bill(order: str) -> str:
            runs.append(order)
            return order * 500_000

        async with app, working(till):
            jobs = [await bill.asend("x") for _ in range(3)]
            for job in jobs:
                assert await result(job) == "x" * 500_000
            assert runs == ["x"]
            names = redis.command("KEYS", "*")
            assert isinstance(names, list)
            assert any("{once:" in str(name) for name in names)
            for name in names:
                assert int(str(redis.command("MEMORY", "USAGE", str(name)))) < 4096, name

    play(redis, test)


def test_a_unique_job_is_not_sent_while_redis_is_down(redis: Redis) -> None:
    async def test(till: Till) -> None:
        await till.sync.asend("a")
        redis.kill()
        with pytest.raises(BrokerUnavailable, match="a unique job needs the state"):
            await till.sync.asend("b")
        redis.restart()
        assert (await till.sync.asend("b")).id

    play(redis, test)
