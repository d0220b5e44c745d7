"""Time as a value that is passed in, so that tests can hold it still."""

import asyncio
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Wall-clock time, and sleeping by it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...

    async def sleep_until(self, instant_ms: int) -> None:
        """Return once `now_ms() >= instant_ms`; at once when that is already so."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, instant_ms: int) -> None:
        # In slices, so that a jump of the wall clock is noticed within a minute.
        while (left := instant_ms - self.now_ms()) > 0:
            await asyncio.sleep(min(left / 1000, 60))
