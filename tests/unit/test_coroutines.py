"""Execution of async tests: a test of the tests."""

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coroutines import run_by, run_in_real_time, time_within

_HOUR = 3600


async def test_an_hour_passes_at_once() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()

    await asyncio.sleep(_HOUR)

    assert loop.time() - before >= _HOUR


@pytest.mark.real_time
async def test_a_marked_test_uses_the_time_of_the_machine() -> None:
    assert abs(asyncio.get_running_loop().time() - time.monotonic()) < _HOUR


@pytest.mark.xfail(raises=AssertionError)
async def test_an_error_in_a_coroutine_fails_its_test() -> None:
    assert await asyncio.sleep(0, False)


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=pytest.mark.real_time)])
@pytest.mark.xfail(raises=AssertionError)
async def test_an_error_in_a_callback_fails_its_test(is_real: bool) -> None:
    def fail() -> None:
        raise RuntimeError(is_real)

    asyncio.get_running_loop().call_soon(fail)
    await asyncio.sleep(0)


@given(st.integers())
@pytest.mark.xfail(raises=AssertionError)
async def test_each_example_is_run(number: int) -> None:
    await asyncio.sleep(_HOUR)
    assert number < 5


def test_an_endless_wait_in_real_time_fails_where_it_waits() -> None:
    async def wait_in_vain() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError) as caught:
        run_in_real_time(wait_in_vain(), within=0.01)

    # Python 3.11.2 has it only as the context.
    interrupted = caught.value.__cause__ or caught.value.__context__
    assert interrupted is not None
    assert "wait_in_vain" in [frame.name for frame in traceback.extract_tb(interrupted.__traceback__)]


def test_a_test_without_a_time_limit_may_take_any_time() -> None:
    assert time_within(0.0, None, "120") is None
    assert time_within(None, 0.0, "120") is None
    assert time_within(None, None, "120") == 115
    assert time_within(300.0, 60.0, "120") == 295


class TestRunBy:
    """A test run by a function gets the function's argument and its own fixtures."""

    @staticmethod
    def play(test: Callable[[int], Coroutine[Any, Any, None]], *, value: int) -> None:
        asyncio.run(test(value))

    @run_by(play, value=3)
    async def test_a_test_method_may_use_both_clocks(self, value: int, /, request: pytest.FixtureRequest) -> None:
        assert value == 3
        assert request.function is not None
