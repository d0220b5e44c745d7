import asyncio

import pytest

from taskmq.errors import TaskTimeout
from taskmq.executors import CoroutineExecutor
from tests.unit.executors.kit import execution

pytestmark = pytest.mark.real_time


async def _run_forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_coroutine_receives_its_arguments_and_its_value_is_returned() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    assert await CoroutineExecutor().run(execution(add, 1, b=2)) == 3
    assert await CoroutineExecutor().run(execution(add, 1, b=2, timeout=5)) == 3


@pytest.mark.parametrize("timeout", [None, 5])
async def test_an_error_is_raised_unchanged(timeout: float | None) -> None:
    error = ValueError("no")

    async def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        await CoroutineExecutor().run(execution(fail, timeout=timeout))
    assert caught.value is error


async def test_a_run_beyond_its_timeout_is_cancelled_and_reported() -> None:
    cleaned_up = False

    async def long() -> None:
        nonlocal cleaned_up
        try:
            await _run_forever()
        finally:
            cleaned_up = True

    it = execution(long, timeout=0.01)
    with pytest.raises(TaskTimeout, match=r"task task ran longer than its timeout of 0\.01 s"):
        await CoroutineExecutor().run(it)

    assert cleaned_up
    assert it.context.cancelled


async def test_a_timeout_error_of_the_function_is_not_a_timeout_of_the_task() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.001):
            await _run_forever()

    it = execution(impatient, timeout=20)
    with pytest.raises(TimeoutError) as caught:
        await CoroutineExecutor().run(it)

    assert not isinstance(caught.value, TaskTimeout)
    assert not it.context.cancelled


async def test_a_coroutine_that_turns_its_timeout_into_a_value_has_a_value() -> None:
    async def stubborn() -> str:
        try:
            await _run_forever()
        except asyncio.CancelledError:
            return "partial"
        raise AssertionError

    assert await CoroutineExecutor().run(execution(stubborn, timeout=0.01)) == "partial"


async def test_a_cancellation_from_outside_is_not_a_timeout() -> None:
    running = asyncio.ensure_future(CoroutineExecutor().run(execution(_run_forever, timeout=20)))
    await asyncio.sleep(0)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running


async def test_closing_has_nothing_to_do() -> None:
    async def answer() -> int:
        return 42

    executor = CoroutineExecutor()
    await executor.aclose()
    await executor.aclose()

    assert await executor.run(execution(answer)) == 42
