"""The only polling waits of the test suite: `eventually` in a thread, `until` on a loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

_INTERVAL = timedelta(milliseconds=20)
# A check may start a process. Tests that wait must not take the processor from those that run.
_PAUSE_PER_CHECK = 2.0
_LONGEST_PAUSE = 1.0


def eventually(
    check: Callable[[], T],
    what: str = "the condition",
    *,
    within: timedelta = timedelta(seconds=30),
    every: timedelta = _INTERVAL,
) -> T:
    """Return the first true value of `check`; repeat it until `within` is over.

    Args:
        every: the pause between two calls, in seconds; twice the time of a call if that is longer, up to one second.

    Raises:
        TimeoutError: `check` returned nothing true in time; the message names the condition.
    """
    deadline = time.monotonic() + within.total_seconds()
    while True:
        began = time.monotonic()
        if value := check():
            return value
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{what} did not come true within {within.total_seconds():g} s")
        time.sleep(_pause(every, now - began))


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
        began = loop.time()
        found = check()
        if found if isinstance(found, bool) else await found:
            return
        now = loop.time()
        if now > deadline:
            raise TimeoutError(f"{what} did not come true within {within.total_seconds():g} s")
        await asyncio.sleep(_pause(every, now - began))


def _pause(every: timedelta, took: float) -> float:
    return max(every.total_seconds(), min(took * _PAUSE_PER_CHECK, _LONGEST_PAUSE))
