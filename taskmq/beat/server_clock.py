"""Common time of all replicas: the clock of the state's server, if it has one.

Between two measurements of that clock, the elapsed time is added, including time for which the machine was suspended.
So the host's wall clock and its changes do not matter.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from taskmq.contracts.stores import Timekeeper
from taskmq.errors import StateUnavailable
from taskmq.model.clock import Clock

_log = logging.getLogger("taskmq.beat")

# A measurement that took longer is too inexact, and is used only if there is no better one.
_QUICK: Final = 20.0
_OLD: Final = 30_000.0
_SLICE: Final = 1.0
_NOTEWORTHY: Final = 1_000


def passed_ms() -> float:
    """Return elapsed ms since some instant, including time for which the machine was suspended."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic() if boot is None else time.clock_gettime(boot)) * 1000


class ServerClock:
    """A `taskmq.model.clock.Clock`.

    Args:
        clock: the host's, used while the state has no clock, or has not answered yet.
        timekeeper: the state's server.
    """

    def __init__(
        self, clock: Clock, timekeeper: Timekeeper | None, *, passed: Callable[[], float] = passed_ms
    ) -> None:
        self._clock = clock
        self._timekeeper = timekeeper
        self._passed = passed
        self._base: float | None = None
        self._measured = 0.0

    @property
    def offset(self) -> int:
        """Delay of the host's clock in ms; negative if it is ahead."""
        return self.now_ms() - self._clock.now_ms()

    def now_ms(self) -> int:
        if self._base is None:
            return self._clock.now_ms()
        return int(self._base + self._passed() - self._measured)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def measure(self) -> None:
        """Measure the server's clock. If it does not answer, the last offset stays in use."""
        if self._timekeeper is None:
            return
        asked = self._passed()
        try:
            told = await self._timekeeper.server_now_ms()
        except StateUnavailable:
            return
        answered = self._passed()
        took = answered - asked
        if self._base is not None and took > _QUICK and answered - self._measured < _OLD:
            return
        is_first = self._base is None
        # It was read at some point between question and answer, cut to whole milliseconds.
        self._base, self._measured = told + 0.5 + took / 2, answered
        if is_first and abs(self.offset) > _NOTEWORTHY:
            _log.warning("the clock of this host is off by %d ms; schedules follow the state's clock", -self.offset)

    async def sleep_until(self, instant_ms: int) -> None:
        if self._timekeeper is None:
            await self._clock.sleep_until(instant_ms)
            return
        # In slices, because the reference may have moved.
        while (left := instant_ms - self.now_ms()) > 0:
            await asyncio.sleep(min(left / 1000, _SLICE))
