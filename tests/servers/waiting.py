"""The only polling waits of the test suite: `eventually` in a thread, `until` on a loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

_INTERVAL = timedelta(milliseconds=20)


def eventually(
    check: Callable[[], T],
    what: str = "the condition",
    *,
    within: timedelta = timedelta(seconds=30),
    every: timedelta = _INTERVAL,
) -> T:
    """Return the first true value of `check`; repeat it until `within` is over.

    Args:
        every: the pause between two calls; longer if a call starts a process.

    Raises:
        TimeoutError: `check` returned nothing true in time; the message names the condition.
    """
    deadline = time.monotonic() + within.total_seconds()
    while not (value := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {within.total_seconds():g} s")
        time.sleep(every.total_seconds())
    return value


async def until(
    check: Callable[[], bool | Awaitable[bool]],
    what: str = "the condition",
    *,
    within: timedelta = timedelta(minutes=1),
    every: timedelta = timedelta(milliseconds=10),
) -> None:
    """Wait until `check` is true while the loop runs. Uses the loop's clock, which may be a virtual one.

    Raises:
        TimeoutError: it was not in time; the message names the condition.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within.total_seconds()
    while True:
        found = check()
        if found if isinstance(found, bool) else await found:
            return
        if loop.time() > deadline:
            raise TimeoutError(f"{what} did not come true within {within.total_seconds():g} s")
        await asyncio.sleep(every.total_seconds())
