"""Clock of a running program."""

import asyncio
import time


class SystemClock:
    """The machine's own clock, as a `taskmq.model.clock.Clock`.

    `monotonic` is `time.monotonic` itself, so that a caller which keeps the bound method pays for no extra frame.
    """

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_until(self, instant_ms: int) -> None:
        # In slices, so that a jump of the wall clock is noticed within a minute.
        while (left := instant_ms - self.now_ms()) > 0:
            await asyncio.sleep(min(left / 1000, 60))
