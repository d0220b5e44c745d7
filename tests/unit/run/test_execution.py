"""A function's return value: a plain value, or work that nothing would run."""

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from taskmq import Reject
from taskmq.run.execution import DONE, check_is_done


async def _mail() -> None: ...


def _rows() -> Iterator[int]:
    yield 1


async def _pages() -> AsyncIterator[int]:
    yield 1


class _Later:
    def __await__(self) -> Generator[None, None, int]:
        yield
        return 1


class _Laterer(_Later):
    pass


@pytest.mark.parametrize("value", [None, 1, "", 0.5, True, [], {}, (), b"", set(), object(), _mail, iter([1])])
def test_a_plain_value_leaves_no_work(value: object) -> None:
    assert check_is_done(value, "shop.mail") is None


def test_an_unawaited_coroutine_is_closed_and_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coroutine = _mail()

        error = check_is_done(coroutine, "shop.mail")

        assert isinstance(error, Reject)
        assert str(error).startswith(
            "task shop.mail returned a coroutine that was never awaited, so its work is not done"
        )
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


@pytest.mark.parametrize("make", [_rows, _pages])
def test_a_generator_is_refused_because_its_code_has_not_run(make: Any) -> None:
    error = check_is_done(make(), "shop.rows")

    assert str(error).startswith("task shop.rows returned a generator, whose code has not run")


@pytest.mark.parametrize("make", [_Later, _Laterer])
def test_any_other_awaitable_is_refused_by_its_type(make: Any) -> None:
    assert f"returned a {make.__name__} that was never awaited" in str(check_is_done(make(), "shop.later"))


async def test_a_started_coroutine_and_a_future_are_not_touched() -> None:
    future = asyncio.get_running_loop().create_future()
    coroutine = _wait(future)
    coroutine.send(None)

    assert isinstance(check_is_done(future, "t"), Reject)
    assert isinstance(check_is_done(coroutine, "t"), Reject)

    assert not future.done()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
    coroutine.close()


async def _wait(future: "asyncio.Future[None]") -> None:
    await future


def test_the_types_that_skip_the_check_cannot_be_awaited() -> None:
    assert not [kind for kind in DONE if hasattr(kind, "__await__")]
