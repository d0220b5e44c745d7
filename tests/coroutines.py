"""How the tests that are coroutines are run; `tests/conftest.py` chooses."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

__all__ = ["run_by", "run_in_real_time"]


def run_in_real_time(main: Coroutine[Any, Any, None], *, within: float) -> None:
    """Run a test's coroutine as time passes; nothing may have gone to the loop's exception handler."""
    complaints: list[str] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(within):
            await main

    asyncio.run(bounded())
    assert not complaints, complaints


def run_by(
    play: Callable[..., object], *args: Any, **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Let `play(test, *args, **options)` run the test: it has its own loop, and what the test works with.

    The test's parameters before `/` are what `play` gives; the others are fixtures, as everywhere.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(*instance: Any, **fixtures: Any) -> None:
            play(functools.partial(test, *instance, **fixtures), *args, **options)

        asked = [
            each.replace(kind=each.POSITIONAL_OR_KEYWORD)
            for each in signature.parameters.values()
            # pytest leaves out the first one of a method, whatever it is.
            if each.kind is not each.POSITIONAL_ONLY or each.name == "self"
        ]
        run.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
        return run

    return decorate
