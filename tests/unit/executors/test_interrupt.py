"""`SoftTimeout` inside coroutines and threads."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from taskmq import SoftTimeout
from taskmq.errors import TaskTimeout
from taskmq.executors import CoroutineExecutor, ThreadExecutor
from taskmq.executors.interrupt import ThreadInterrupt
from tests.servers.waiting import eventually, until
from tests.unit.executors.kit import LOOPS, execution, run


async def _run_forever() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("timeout", [None, 20])
async def test_an_interrupt_is_raised_where_the_coroutine_waits_and_can_be_handled(timeout: float | None) -> None:
    async def long() -> str:
        try:
            await _run_forever()
        except SoftTimeout as error:
            # The coroutine is not cancelled: it may continue to wait.
            await asyncio.sleep(0.01)
            return str(error)
        raise AssertionError

    value = await CoroutineExecutor().run(execution(long, soft_timeout=0.01, timeout=timeout))

    assert value == "task task ran longer than its soft_timeout of 0.01 s"
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@pytest.mark.real_time
async def test_a_coroutine_that_does_not_catch_the_interrupt_ends_with_it() -> None:
    with pytest.raises(SoftTimeout, match=r"soft_timeout of 0\.01 s") as caught:
        await CoroutineExecutor().run(execution(_run_forever, soft_timeout=0.01))

    assert not isinstance(caught.value, asyncio.CancelledError)
    assert type(caught.value) is SoftTimeout


async def test_a_coroutine_that_swallows_the_interrupt_runs_until_its_hard_timeout() -> None:
    seen: list[str] = []

    async def stubborn() -> None:
        for _ in range(2):
            try:
                await _run_forever()
            except SoftTimeout:
                seen.append("soft")
            except asyncio.CancelledError:
                seen.append("hard")
                raise

    with pytest.raises(TaskTimeout) as caught:
        await CoroutineExecutor().run(execution(stubborn, soft_timeout=0.01, timeout=0.05))

    assert seen == ["soft", "hard"]
    assert not isinstance(caught.value, SoftTimeout)


@pytest.mark.real_time
async def test_task_groups_and_timeouts_clean_up_as_for_a_cancellation() -> None:
    ended: list[str] = []

    async def child(name: str) -> None:
        try:
            await _run_forever()
        finally:
            ended.append(name)

    async def group() -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(child("a"))
            tasks.create_task(child("b"))

    async def waits_for() -> None:
        await asyncio.wait_for(child("c"), 20)

    async def gathers() -> None:
        await asyncio.gather(child("d"), child("e"))

    for function in (group, waits_for, gathers):
        with pytest.raises(SoftTimeout):
            await CoroutineExecutor().run(execution(function, soft_timeout=0.01, timeout=20))
    await asyncio.sleep(0)

    assert sorted(ended) == ["a", "b", "c", "d", "e"]


async def test_an_awaited_task_may_swallow_the_interrupt_until_the_hard_timeout() -> None:
    async def keeps() -> None:
        try:
            await _run_forever()
        except asyncio.CancelledError:
            return

    async def waits() -> None:
        await asyncio.create_task(keeps())
        await _run_forever()

    with pytest.raises(TaskTimeout) as caught:
        await CoroutineExecutor().run(execution(waits, soft_timeout=0.01, timeout=0.05))
    assert not isinstance(caught.value, SoftTimeout)


@pytest.mark.real_time
async def test_a_real_cancellation_in_the_same_iteration_takes_precedence() -> None:
    running = asyncio.ensure_future(CoroutineExecutor().run(execution(_run_forever, soft_timeout=0.02)))
    await asyncio.sleep(0)
    time.sleep(0.03)
    # The timer is due and has not been processed.
    asyncio.get_running_loop().call_soon(running.cancel)

    with pytest.raises(asyncio.CancelledError) as caught:
        await running
    assert not isinstance(caught.value, SoftTimeout)


async def test_a_coroutine_that_ends_in_time_is_not_interrupted() -> None:
    async def quick() -> int:
        await asyncio.sleep(0)
        return 1

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    assert await CoroutineExecutor().run(execution(quick, soft_timeout=0.05)) == 1
    with pytest.raises(ValueError, match="no"):
        await CoroutineExecutor().run(execution(fails, soft_timeout=0.05))
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("timeout", [None, 20])
def test_a_thread_is_interrupted_between_two_instructions(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], timeout: float | None
) -> None:
    async def main() -> None:
        executor = ThreadExecutor()

        def long() -> str:
            try:
                while True:
                    time.sleep(0.001)
            except SoftTimeout:
                return "partial"

        def run_forever() -> None:
            while True:
                time.sleep(0.001)

        assert await executor.run(execution(long, soft_timeout=0.02, timeout=timeout)) == "partial"
        with pytest.raises(SoftTimeout):
            await executor.run(execution(run_forever, soft_timeout=0.02, timeout=timeout))
        assert executor.abandoned == 0
        await executor.aclose()

    run(main(), loop_factory=loop_factory)


@pytest.mark.real_time
async def test_a_thread_that_swallows_the_interrupt_is_abandoned_at_its_hard_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()

    executor = ThreadExecutor()

    def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(SoftTimeout):
                release.wait(0.01)

    with pytest.raises(TaskTimeout):
        await executor.run(execution(stubborn, soft_timeout=0.02, timeout=0.1))
    assert executor.abandoned == 1
    assert await executor.run(execution(lambda: "the slot is free")) == "the slot is free"
    release.set()
    await until(lambda: executor.abandoned == 0)
    await executor.aclose()
    assert "job job-1 of task task: abandoning its thread" in caplog.text
    assert "in stubborn" in caplog.text


def test_the_interrupt_waits_until_the_thread_leaves_a_lock_of_the_standard_library() -> None:
    call, go = ThreadInterrupt(), threading.Event()
    ended: list[tuple[object, BaseException | None]] = []

    def function() -> None:
        go.wait()
        while True:
            time.sleep(0.001)

    thread = threading.Thread(target=lambda: ended.append(call.call(function)))
    thread.start()
    ident = thread.ident
    assert ident is not None

    def is_in_a_lock() -> bool:
        return sys._current_frames()[ident].f_globals["__name__"] == "threading" and call.interrupt() == "later"

    eventually(is_in_a_lock)
    assert call.interrupt() == "later"
    go.set()
    eventually(lambda: call.interrupt() != "later")
    thread.join()

    ((value, error),) = ended
    assert value is None
    assert isinstance(error, SoftTimeout)


_TRACED = """
import sys
from taskmq.executors.interrupt import ThreadInterrupt

def function(): ...

assert ThreadInterrupt().call(function) == (None, None)
sys.settrace(lambda *_: None)
function()
sys.settrace(None)
print("went on")
"""


def test_a_call_without_interrupt_leaves_the_interpreter_unchanged() -> None:
    # CPython 3.11 looks forever for a withdrawn call, and under a tracer nothing else runs.
    done = subprocess.run([sys.executable, "-c", _TRACED], capture_output=True, text=True, timeout=20, check=True)

    assert done.stdout == "went on\n"


def test_a_run_that_waits_for_the_interpreter_is_interrupted_once_it_starts() -> None:
    call = ThreadInterrupt()

    assert call.interrupt() == "later"
    assert call.call(lambda: 1) == (1, None)
    assert call.interrupt() == "over"
