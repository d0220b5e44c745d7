"""The one place of the test suite that waits by polling."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

T = TypeVar("T")

_INTERVAL = timedelta(milliseconds=20)


def eventually(
    check: Callable[[], T],
    what: str = "the condition",
    *,
    within: timedelta = timedelta(seconds=10),
    every: timedelta = _INTERVAL,
) -> T:
    """The first true value that `check` gives; asks again and again until `within` is over.

    Args:
        every: how long it waits before it asks again; longer where asking starts a process.

    Raises:
        TimeoutError: `check` gave nothing true in time; the message says what was awaited.
    """
    deadline = time.monotonic() + within.total_seconds()
    while not (value := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {within.total_seconds():g} s")
        time.sleep(every.total_seconds())
    return value
