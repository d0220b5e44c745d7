import asyncio
import gc
import random
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from taskmq.errors import TaskTimeout, WorkerLost
from taskmq.executors import ThreadExecutor
from taskmq.run.context import Context
from tests.servers.waiting import until
from tests.unit.executors.kit import LOOPS, execution, run

pytestmark = pytest.mark.real_time

_variable: ContextVar[str] = ContextVar("_variable", default="unset")


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "taskmq-task"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> None:
    """Check that no thread of an earlier test remains."""
    assert not _threads()


async def _wait_until_closed(executor: ThreadExecutor) -> None:
    await executor.aclose()
    await until(lambda: not _threads())


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("timeout", [None, 20])
def test_a_function_runs_in_another_thread_and_returns_its_value(
    timeout: float | None, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        executor = ThreadExecutor()

        def where(a: int, b: int) -> tuple[int, int]:
            return a + b, threading.get_ident()

        value = await executor.run(execution(where, 1, b=2, timeout=timeout))

        assert isinstance(value, tuple)
        assert value[0] == 3
        assert value[1] != threading.get_ident()
        await _wait_until_closed(executor)

    run(main(), loop_factory=loop_factory)


async def test_consecutive_runs_use_one_thread() -> None:
    executor = ThreadExecutor()

    idents = {await executor.run(execution(threading.get_ident)) for _ in range(200)}

    assert len(idents) == 1
    await _wait_until_closed(executor)


async def test_concurrent_runs_have_one_thread_each_and_no_more_are_created() -> None:
    executor = ThreadExecutor()
    together = threading.Barrier(8)

    for _ in range(5):
        await asyncio.gather(*(executor.run(execution(together.wait, 10)) for _ in range(8)))

    assert len(_threads()) == 8
    await _wait_until_closed(executor)


async def test_a_thread_sees_the_context_variables_of_its_caller_and_keeps_its_own() -> None:
    executor = ThreadExecutor()

    def look() -> str:
        seen = _variable.get()
        _variable.set("the thread's")
        return seen

    _variable.set("mine")
    assert await executor.run(execution(look)) == "mine"
    assert _variable.get() == "mine"
    _variable.set("another")
    assert await executor.run(execution(look)) == "another"
    await _wait_until_closed(executor)


@pytest.mark.parametrize("timeout", [None, 20])
@pytest.mark.parametrize(
    "error",
    [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("own")],
    ids=repr,
)
async def test_an_error_of_a_function_is_raised_and_its_thread_survives(
    error: BaseException, timeout: float | None
) -> None:
    executor = ThreadExecutor()

    def fail() -> None:
        raise error

    before = await executor.run(execution(threading.get_ident))
    with pytest.raises(type(error)) as caught:
        await executor.run(execution(fail, timeout=timeout))

    assert caught.value is error
    assert await executor.run(execution(threading.get_ident)) == before
    assert executor.abandoned == 0
    await _wait_until_closed(executor)


async def test_a_stop_iteration_becomes_an_error_that_a_coroutine_can_raise() -> None:
    executor = ThreadExecutor()

    def fail() -> None:
        raise StopIteration("done")

    with pytest.raises(RuntimeError, match="StopIteration"):
        await executor.run(execution(fail))
    await _wait_until_closed(executor)


async def test_a_run_beyond_its_timeout_is_abandoned_and_its_slot_is_free() -> None:
    executor = ThreadExecutor()
    release, told = threading.Event(), threading.Event()

    def stuck(context: Context) -> None:
        release.wait(20)
        if context.cancelled:
            told.set()

    it = execution(stuck, timeout=0.02)
    it.args = (it.context,)
    with pytest.raises(TaskTimeout):
        await executor.run(it)
    assert executor.abandoned == 1

    assert await executor.run(execution(lambda: "next")) == "next"

    release.set()
    await until(lambda: executor.abandoned == 0)
    assert told.is_set()
    await _wait_until_closed(executor)


@pytest.mark.parametrize("timeout", [None, 20])
async def test_a_cancelled_run_is_abandoned_in_the_same_way(timeout: float | None) -> None:
    executor = ThreadExecutor()
    started, release = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait(20)

    it = execution(stuck, timeout=timeout)
    running = asyncio.ensure_future(executor.run(it))
    await until(started.is_set)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert it.context.cancelled
    assert executor.abandoned == 1
    release.set()
    await until(lambda: executor.abandoned == 0)
    await _wait_until_closed(executor)


async def test_an_error_after_the_timeout_is_dropped_silently() -> None:
    executor = ThreadExecutor()
    release = threading.Event()

    def late() -> None:
        release.wait(20)
        raise ValueError("too late")

    with pytest.raises(TaskTimeout):
        await executor.run(execution(late, timeout=0.01))
    release.set()
    await until(lambda: executor.abandoned == 0)

    # Complaints of the collector would reach the loop's exception handler, which `run` checks.
    gc.collect()
    await asyncio.sleep(0)
    await _wait_until_closed(executor)


async def test_a_waiting_thread_keeps_no_references() -> None:
    executor = ThreadExecutor()

    class Large:
        pass

    def give_back(value: Large) -> Large:
        return value

    async def one_run() -> "weakref.ref[Large]":
        large = Large()
        await executor.run(execution(give_back, large))
        return weakref.ref(large)

    reference = await one_run()

    def is_gone() -> bool:
        gc.collect()
        return reference() is None

    await until(is_gone)
    await _wait_until_closed(executor)


async def test_an_idle_thread_ends_after_its_idle_time() -> None:
    executor = ThreadExecutor(idle=0.02)
    await asyncio.gather(*(executor.run(execution(threading.get_ident)) for _ in range(4)))

    await until(lambda: not _threads())

    assert await executor.run(execution(lambda: "again")) == "again"
    await _wait_until_closed(executor)


async def test_no_run_is_stranded_while_threads_start_and_end() -> None:
    """The count of idle threads must match the queue: threads end all the time, just as runs are put."""

    executor = ThreadExecutor(idle=0.0005)
    rng = random.Random(7)
    # A single caller: the thread of another one would execute the stranded run.
    for _ in range(1000):
        async with asyncio.timeout(5):
            assert await executor.run(execution(lambda: 1)) == 1
        end = time.perf_counter() + rng.uniform(0.0004, 0.0007)
        while time.perf_counter() < end:
            pass
    await until(lambda: not _threads())
    await executor.aclose()


async def test_closing_ends_idle_threads_and_abandons_running_ones() -> None:
    executor = ThreadExecutor()
    started, release = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait(20)

    running = asyncio.ensure_future(executor.run(execution(stuck)))
    await until(started.is_set)
    await executor.run(execution(lambda: None))
    assert len(_threads()) == 2

    await executor.aclose()
    await executor.aclose()

    await until(lambda: len(_threads()) == 1)
    release.set()
    await running
    await until(lambda: not _threads())


async def test_nothing_runs_after_closing() -> None:
    executor = ThreadExecutor()
    await executor.aclose()

    with pytest.raises(WorkerLost):
        await executor.run(execution(lambda: None))


def test_a_thread_that_outlives_the_loop_ends_silently() -> None:
    release = threading.Event()

    async def main() -> None:
        executor = ThreadExecutor()
        with pytest.raises(TaskTimeout):
            await executor.run(execution(release.wait, 20, timeout=0.01))
        await executor.aclose()

    run(main())
    release.set()
    for thread in _threads():
        thread.join(10)
    assert not _threads()
