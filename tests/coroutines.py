"""Execution of async tests; selected by `tests/conftest.py`."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

_BEFORE: Final = 5.0


def time_within(*limits: float | str | None) -> float | None:
    """Return the seconds within which a test has to end, so that it fails where it waits, before pytest ends it.

    Args:
        limits: of pytest-timeout, in seconds; the first that is set counts, and 0 is no limit.
    """
    limit = next(float(each) for each in limits if each is not None)
    return limit - _BEFORE if limit else None


def run_in_real_time(main: Coroutine[Any, Any, None], *, within: float | None) -> None:
    """Run a test's coroutine in real time; the loop's exception handler must not have been called."""
    complaints: list[str] = []

    async def run_with_timeout() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(within):
            await main

    asyncio.run(run_with_timeout())
    assert not complaints, complaints


def run_by(
    play: Callable[..., object], *args: Any, **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Let `play(test, *args, **options)` run the test: it provides the loop and the test's objects.

    The test's parameters before `/` come from `play`; the others are fixtures, as usual.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(*instance: Any, **fixtures: Any) -> None:
            play(functools.partial(test, *instance, **fixtures), *args, **options)

        asked = [
            each.replace(kind=each.POSITIONAL_OR_KEYWORD)
            for each in signature.parameters.values()
            # pytest skips the first parameter of a method, whatever it is.
            if each.kind is not each.POSITIONAL_ONLY or each.name == "self"
        ]
        run.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
        return run

    return decorate
