"""Providers in plain calls, in workers on `memory://`, on the loop and in threads."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Annotated, Any

import pytest

from taskmq import Context, Depends, TaskMQ, UnsupportedFeature
from taskmq.injection.resolve import Dependencies
from taskmq.run.context import current_context
from taskmq.testing import override
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory
from tests.servers.waiting import until


class Log:
    """A record of actions in order."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.threads: dict[str, int] = {}

    def __call__(self, word: str) -> str:
        self.words.append(word)
        self.threads[word] = threading.get_ident()
        return word

    def provider(self, name: str, *, error: bool = False) -> Callable[[], Iterator[str]]:
        def provide() -> Iterator[str]:
            self(f"open {name}")
            try:
                yield name
            except BaseException as failure:
                self(f"{name} saw {type(failure).__name__}")
                raise
            finally:
                self(f"close {name}")
            if error:
                raise RuntimeError(f"{name} cannot be ended")

        return provide

    def aprovider(self, name: str) -> Callable[[], AsyncIterator[str]]:
        async def provide() -> AsyncIterator[str]:
            await asyncio.sleep(0)
            self(f"open {name}")
            try:
                yield name
            finally:
                await asyncio.sleep(0)
                self(f"close {name}")

        return provide


@pytest.fixture
def app() -> Iterator[TaskMQ]:
    yield TaskMQ("memory://providing")
    forget_memory("providing")


@pytest.fixture
def log() -> Log:
    return Log()


def play(app: TaskMQ, test: Callable[[], Coroutine[Any, Any, None]], **config: Any) -> None:
    """Run a test beside a worker, which drains at its end."""

    async def main() -> None:
        async with asyncio.timeout(20):
            worker = Worker(app, WorkerConfig(name="w", **config))
            running = asyncio.create_task(worker.run())
            await worker.is_ready.wait()
            try:
                await test()
            finally:
                worker.drain()
                await running

    asyncio.run(main())


def test_a_plain_call_resolves_everything_and_closes_it_in_reverse_order(app: TaskMQ, log: Log) -> None:
    a, b = log.provider("a"), log.aprovider("b")

    @app.task(name="sync")
    def sync(n: int, *, a: str = Depends(a)) -> str:
        return log(f"{n} {a}")

    @app.task(name="coroutine")
    async def coroutine(n: int, *, a: str = Depends(a), b: str = Depends(b)) -> str:
        return log(f"{n} {a} {b}")

    assert sync(1) == "1 a"
    assert asyncio.run(coroutine(2)) == "2 a b"
    assert log.words == ["open a", "1 a", "close a", "open a", "open b", "2 a b", "close b", "close a"]


def test_an_argument_of_the_caller_replaces_a_provider_and_its_own_dependencies(app: TaskMQ, log: Log) -> None:
    def both(a: str = Depends(log.provider("a"))) -> str:
        return log(f"both {a}")

    @app.task(name="t")
    def task(n: int, x: str = Depends(both), y: str = Depends(log.provider("y"))) -> str:
        return f"{n} {x} {y}"

    assert task(1, x="mine", y="mine") == "1 mine mine"
    assert task(1, "mine", "mine") == "1 mine mine"
    assert log.words == []
    assert task(1, "mine") == "1 mine y"
    assert task(1, y="mine") == "1 both a mine"
    assert log.words == ["open y", "close y", "open a", "both a", "close a"]


def test_a_plain_function_without_a_worker_cannot_await_an_async_provider(app: TaskMQ, log: Log) -> None:
    @app.task(name="t")
    def task(b: str = Depends(log.aprovider("b"))) -> None: ...

    with pytest.raises(UnsupportedFeature, match=r"task t: its dependency .*provide is asynchronous"):
        task()

    async def inside() -> None:
        with pytest.raises(UnsupportedFeature, match="make the task a coroutine function"):
            task()

    play(app, inside)


def test_outside_a_worker_the_worker_scope_is_the_call(app: TaskMQ, log: Log) -> None:
    @app.task(name="t")
    def task(a: str = Depends(log.provider("a"), scope="worker")) -> None: ...

    task()
    task()

    assert log.words == ["open a", "close a"] * 2


def test_a_task_without_an_app_can_be_called(log: Log) -> None:
    from taskmq import task as make

    @make(name="t")
    def task(a: str = Depends(log.provider("a"))) -> str:
        return a

    assert task() == "a"


def test_providers_see_the_error_of_the_task_and_cannot_suppress_it(app: TaskMQ, log: Log) -> None:
    def swallows() -> Iterator[str]:
        try:
            yield "x"
        except ValueError:
            log("swallowed")

    async def aswallows() -> AsyncIterator[str]:
        try:
            yield "y"
        except ValueError:
            log("swallowed too")

    @app.task(name="t")
    async def task(
        x: str = Depends(swallows), y: str = Depends(aswallows), a: str = Depends(log.provider("a"))
    ) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(task())
    assert log.words == ["open a", "a saw ValueError", "close a", "swallowed too", "swallowed"]


def test_a_failing_provider_closes_earlier_ones_and_the_function_is_not_called(app: TaskMQ, log: Log) -> None:
    def fails(a: str = Depends(log.provider("a"))) -> str:
        raise ConnectionError("no database")

    @app.task(name="t")
    def task(x: str = Depends(fails)) -> None:
        log("called")

    with pytest.raises(ConnectionError):
        task()
    assert log.words == ["open a", "a saw ConnectionError", "close a"]


def test_a_failing_close_fails_the_task_and_does_not_prevent_other_closes(app: TaskMQ, log: Log) -> None:
    @app.task(name="t")
    def task(a: str = Depends(log.provider("a")), b: str = Depends(log.provider("b", error=True))) -> None: ...

    with pytest.raises(RuntimeError, match="b cannot be ended"):
        task()
    assert log.words == ["open a", "open b", "close b", "a saw RuntimeError", "close a"]


def test_threads_open_and_close_sync_providers_and_the_loop_handles_async_ones(app: TaskMQ, log: Log) -> None:
    def above(b: str = Depends(log.aprovider("b"))) -> Iterator[str]:
        log("open above")
        yield b
        log("close above")

    def job_id_of(ctx: Context) -> str:
        return ctx.job_id

    @app.task(name="t")
    def task(n: int, x: str = Depends(above), job: str = Depends(job_id_of)) -> list[str]:
        log("called")
        current = current_context.get()
        assert current is not None
        assert current.job_id == job
        return [x, job]

    async def test() -> None:
        job = await task.asend(1)
        assert await job.aresult(timeout=10) == ["b", job.id]
        here = threading.get_ident()
        assert log.words == ["open b", "open above", "called", "close above", "close b"]
        assert log.threads["open b"] == log.threads["close b"] == here
        assert log.threads["open above"] == log.threads["called"] == log.threads["close above"] != here

    play(app, test)


def test_a_timeout_or_a_cancellation_closes_open_dependencies(app: TaskMQ, log: Log) -> None:
    @app.task(name="slow", timeout=0.05, retry=None)
    async def slow(a: str = Depends(log.provider("a")), b: str = Depends(log.aprovider("b"))) -> None:
        await asyncio.sleep(600)

    async def test() -> None:
        with pytest.raises(Exception, match="longer than its timeout"):
            await (await slow.asend()).aresult(timeout=10)
        assert log.words == ["open a", "open b", "close b", "a saw CancelledError", "close a"]

    play(app, test)


def test_a_worker_scoped_dependency_is_created_once_and_closed_after_the_drain(app: TaskMQ, log: Log) -> None:
    opened = asyncio.Event()

    async def pool() -> AsyncIterator[str]:
        log("open pool")
        await opened.wait()
        yield "pool"
        log("close pool")

    def lent(of: str = Depends(pool, scope="worker")) -> Iterator[str]:
        log("open lent")
        yield of
        log("close lent")

    shared = Depends(lent, scope="worker")

    @app.task(name="coroutine")
    async def coroutine(n: int, x: str = shared) -> None: ...

    @app.task(name="threaded")
    def threaded(
        n: int, x: str = shared, y: str = Depends(log.provider("y", error=True), scope="worker")
    ) -> None: ...

    async def test() -> None:
        jobs = [await kind.asend(n) for n in range(4) for kind in (coroutine, threaded)]
        await until(lambda: "open pool" in log.words)
        opened.set()
        for job in jobs:
            await job.aresult(timeout=10)
        assert log.words == ["open pool", "open lent", "open y"]

    play(app, test, concurrency=8)

    # A failing close is logged and does not prevent other closes.
    assert log.words[3:] == ["close y", "close lent", "close pool"]


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
def test_a_worker_scoped_provider_belongs_to_no_job(app: TaskMQ, kind: str) -> None:
    """Neither log lines nor the tenant and the parents of its jobs are those of the first job."""
    seen: list[Context | None] = []

    async def pool() -> str:
        await asyncio.create_task(_note())
        return "pool"

    async def _note() -> None:
        seen.append(current_context.get())

    if kind == "coroutine":

        @app.task(name="t")
        async def task(x: str = Depends(pool, scope="worker")) -> bool:
            return current_context.get() is not None
    else:

        @app.task(name="t")
        def task(x: str = Depends(pool, scope="worker")) -> bool:
            return current_context.get() is not None

    async def test() -> None:
        assert await (await app.tasks["t"].asend()).aresult(timeout=10)

    play(app, test)

    assert seen == [None]


def test_a_failure_is_not_cached_and_waiting_runs_try_again(app: TaskMQ, log: Log) -> None:
    tries: list[int] = []

    async def pool() -> str:
        tries.append(len(tries))
        await asyncio.sleep(0.01)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "pool"

    @app.task(name="t", retry=None)
    async def task(n: int, x: str = Depends(pool, scope="worker")) -> str:
        return x

    async def test() -> None:
        jobs = [await task.asend(n) for n in range(5)]
        results = await asyncio.gather(*(job.aresult(timeout=10) for job in jobs), return_exceptions=True)
        assert [str(each) for each in results].count("pool") == 3

    play(app, test, concurrency=5)

    assert len(tries) == 3


def test_an_override_applies_inside_its_block_and_the_innermost_wins(app: TaskMQ) -> None:
    def real() -> str:
        return "real"

    def deep(of: str = Depends(real)) -> str:
        return f"deep {of}"

    @app.task(name="t")
    def task(x: Annotated[str, Depends(deep)]) -> str:
        return x

    def fake(n: int = Depends(lambda: 7)) -> Iterator[str]:
        yield f"fake {n}"

    with override(app, real, fake):
        assert task() == "deep fake 7"  # type: ignore[call-arg]
        with override(app, real, lambda: "inner"):
            assert task() == "deep inner"  # type: ignore[call-arg]
        with override(app, deep, lambda: "none"):
            assert task() == "none"  # type: ignore[call-arg]
    assert task() == "deep real"  # type: ignore[call-arg]


def test_an_override_applies_in_a_worker_and_to_worker_scoped_dependencies(app: TaskMQ) -> None:
    def real() -> str:
        return "real"

    def above(of: str = Depends(real, scope="worker")) -> str:
        return f"above {of}"

    @app.task(name="t")
    async def task(n: int, x: str = Depends(above, scope="worker")) -> str:
        return x

    async def test() -> None:
        assert await (await task.asend(1)).aresult(timeout=10) == "above real"
        with override(app, real, lambda: "fake"):
            assert await (await task.asend(1)).aresult(timeout=10) == "above fake"
        assert await (await task.asend(1)).aresult(timeout=10) == "above real"

    play(app, test)


@pytest.mark.real_time
async def test_workers_of_one_loop_share_dependencies_and_the_last_one_closes_them(log: Log) -> None:
    known = Dependencies()
    async with known.working():
        first = known.pool
        async with known.working():
            assert known.pool is first
        assert known.pool is first
    assert known.pool is None


def test_a_process_without_a_loop_keeps_and_closes_its_own_dependencies(app: TaskMQ, log: Log) -> None:
    @app.task(name="t")
    def task(a: str = Depends(log.provider("a"), scope="worker")) -> None: ...

    with app.tasks.dependencies.working_without_loop():
        task()
        task()
        assert log.words == ["open a"]

    assert log.words == ["open a", "close a"]
