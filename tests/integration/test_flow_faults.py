"""Workflows while Redis is paused, killed, full and failed over: they end correctly; emptied, they are lost."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

import pytest

from taskmq import FlowNotFound, StateUnavailable, TaskMQ, dag
from taskmq.model.outcome import Dead, Outcome
from taskmq.testing.runner import eventually
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt, Permit
from taskmq.worker.guards.workflow import WorkflowGuard
from tests.integration.redis_case import answers
from tests.servers import Redis
from tests.unit.app_kit import new_url
from tests.unit.workflow.state_flows import send_to_state

PATIENCE = 60.0


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Start a server for the test."""
    with Redis() as server:
        yield server


class Passages(list[tuple[str, object]]):
    """Records the calls of the workflows' gate: step and result."""

    async def wait_for(self, asked: str, answer: object, *, times: int = 1) -> None:
        async def count() -> bool:
            return self.count((asked, answer)) >= times

        await eventually(count, True, within=PATIENCE)


@pytest.fixture
def passages(monkeypatch: pytest.MonkeyPatch) -> Passages:
    passages = Passages()
    enter, leave = WorkflowGuard.acquire, WorkflowGuard.release

    async def watched_acquire(gate: WorkflowGuard, attempt: Attempt) -> Permit | Outcome:
        try:
            answer = await enter(gate, attempt)
        except StateUnavailable:
            passages.append(("acquire", StateUnavailable))
            raise
        passages.append(("acquire", Dead if isinstance(answer, Dead) else type(answer)))
        return answer

    async def watched_release(gate: WorkflowGuard, run: object, record: object) -> bool:
        try:
            counts = await leave(gate, run, record)  # type: ignore[arg-type]
        except StateUnavailable:
            passages.append(("release", StateUnavailable))
            raise
        passages.append(("release", counts))
        return counts

    monkeypatch.setattr(WorkflowGuard, "acquire", watched_acquire)
    monkeypatch.setattr(WorkflowGuard, "release", watched_release)
    return passages


class Mill:
    """Four steps: one that waits at a gate, then three parallel ones, then their sum."""

    def __init__(self, url: str) -> None:
        options = "&timeout=2" if "?" in url else "?timeout=2"
        self.app = TaskMQ(new_url(), state=url + options)
        self.runs: Counter[str] = Counter()
        self.open = asyncio.Event()

        @self.app.task(name="first")
        async def first() -> int:
            self.runs["first"] += 1
            await self.open.wait()
            return 1

        @self.app.task(name="more")
        async def more(number: int, *, by: int) -> int:
            self.runs[f"more {by}"] += 1
            return number + by

        @self.app.task(name="last")
        async def last(*numbers: int) -> int:
            self.runs["last"] += 1
            return sum(numbers)

        self.graph = dag()
        one = self.graph.add(first.s())
        beside = [self.graph.add(more.s(by=by), after=[one], name=f"more {by}") for by in (1, 2, 3)]
        self.graph.add(last.s(), after=beside)

    async def wait_for_begin(self) -> None:
        async def look() -> int:
            return self.runs["first"]

        await eventually(look, 1, within=PATIENCE)

    def was_run_once(self) -> bool:
        return self.runs == Counter(("first", "more 1", "more 2", "more 3", "last"))


@contextlib.asynccontextmanager
async def working(mill: Mill) -> AsyncGenerator[None, None]:
    worker = Worker(mill.app, WorkerConfig(concurrency=8))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()
    try:
        yield
    finally:
        worker.requeue_now()
        await asyncio.wait((running,))


def play(url: str, test: Callable[[Mill], Awaitable[None]]) -> None:
    async def main() -> None:
        mill = Mill(url)
        async with asyncio.timeout(PATIENCE + 10), mill.app:
            await test(mill)

    asyncio.run(main())


async def answering(mill: Mill) -> None:
    state = mill.app.sessions.current().state
    assert state is not None
    await answers(state)


def channels(redis: Redis) -> list[object]:
    found = redis.command("PUBSUB", "CHANNELS")
    assert isinstance(found, list)
    return [*found]


def pause(redis: Redis) -> Callable[[], None]:
    redis.pause()
    return redis.resume


def kill(redis: Redis) -> Callable[[], None]:
    redis.kill()
    return redis.restart


def fill(redis: Redis) -> Callable[[], None]:
    redis.command("CONFIG", "SET", "maxmemory", "1")

    def make_room() -> None:
        redis.command("CONFIG", "SET", "maxmemory", "0")

    return make_room


@pytest.mark.parametrize("take_away", [pause, kill, fill], ids=["paused", "killed", "full"])
def test_a_step_that_ends_while_redis_is_down_is_reported_after_the_outage(
    redis: Redis, passages: Passages, take_away: Callable[[Redis], Callable[[], None]]
) -> None:
    async def test(mill: Mill) -> None:
        async with working(mill):
            flow = await send_to_state(mill.graph)
            await mill.wait_for_begin()
            give_back = take_away(redis)
            try:
                mill.open.set()
                await passages.wait_for("release", StateUnavailable)
                assert mill.runs.total() == 1
            finally:
                give_back()
            await answering(mill)
            assert await flow.aresult(PATIENCE) == {"last": 9}
            assert (await flow.astate()).state == "succeeded"
        assert mill.was_run_once()

    play(redis.url, test)


@pytest.mark.parametrize("take_away", [pause, kill, fill], ids=["paused", "killed", "full"])
def test_a_step_that_becomes_ready_while_redis_is_down_waits(
    redis: Redis, passages: Passages, take_away: Callable[[Redis], Callable[[], None]]
) -> None:
    async def test(mill: Mill) -> None:
        flow = await send_to_state(mill.graph)
        mill.open.set()
        give_back = take_away(redis)
        async with working(mill):
            try:
                await passages.wait_for("acquire", StateUnavailable, times=2)
                assert mill.runs.total() == 0
            finally:
                give_back()
            await answering(mill)
            assert await flow.aresult(PATIENCE) == {"last": 9}
        assert mill.was_run_once()

    play(redis.url, test)


def test_a_workflow_continues_with_the_replica_after_a_failover(redis: Redis, passages: Passages) -> None:
    async def test(mill: Mill, other: Redis) -> None:
        async with working(mill):
            flow = await send_to_state(mill.graph)
            await mill.wait_for_begin()
            other.command("REPLICAOF", "127.0.0.1", str(redis.port))

            async def is_replicated() -> bool:
                return other.command("DBSIZE") == redis.command("DBSIZE")

            await eventually(is_replicated, True, within=PATIENCE)
            redis.kill()
            mill.open.set()
            await passages.wait_for("release", StateUnavailable)
            other.command("REPLICAOF", "NO", "ONE")
            await answering(mill)
            assert await flow.aresult(PATIENCE) == {"last": 9}
        assert mill.was_run_once()

    with Redis() as other:
        play(f"redis://127.0.0.1:{redis.port},127.0.0.1:{other.port}/0", lambda mill: test(mill, other))


def test_a_workflow_lost_by_redis_ends_as_dead_letters_without_endless_waits(
    redis: Redis, passages: Passages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskmq.workflow.handle._LOOK_AGAIN", 0.5)

    async def test(mill: Mill) -> None:
        async with working(mill):
            flow = await send_to_state(mill.graph)
            await mill.wait_for_begin()
            waits = asyncio.create_task(flow.aresult())

            async def has_result() -> bool:
                return any("taskmq:flow:" in str(channel) for channel in channels(redis))

            await eventually(has_result, True, within=PATIENCE)
            redis.flush()
            mill.open.set()
            # Its end does not count; its message is redelivered, and it is unknown to the state.
            await passages.wait_for("release", False)
            await passages.wait_for("acquire", Dead)
            with pytest.raises(FlowNotFound):
                await flow.astate()
            with pytest.raises(FlowNotFound):
                async with asyncio.timeout(20):
                    await waits
        assert mill.runs == Counter(("first",))

    play(redis.url, test)
