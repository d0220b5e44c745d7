"""A clock that moves only when a test moves it."""

import asyncio
import heapq
import itertools
import threading

from taskmq.model.units import Duration, parse_duration, parse_seconds, to_ms

_Sleeper = tuple[int, int, asyncio.AbstractEventLoop, asyncio.Future[None]]


class FakeClock:
    """A `taskmq.model.clock.Clock` whose time moves only by `advance`; it never really sleeps."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now = start_ms
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._sleepers: list[_Sleeper] = []

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now} ms, {self.sleepers} sleeping>"

    @property
    def sleepers(self) -> int:
        """Number of sleepers at the moment."""
        with self._lock:
            return len(self._sleepers)

    @property
    def next_instant(self) -> int | None:
        """Instant of the first sleeper (ms since the epoch); None without sleepers."""
        with self._lock:
            return min((instant for instant, *_ in self._sleepers), default=None)

    def now_ms(self) -> int:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        return self.now_ms() / 1000

    async def sleep_until(self, instant_ms: int) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if instant_ms <= self._now:
                return
            sleeper: _Sleeper = (instant_ms, next(self._order), loop, loop.create_future())
            heapq.heappush(self._sleepers, sleeper)
        try:
            await sleeper[3]
        finally:
            self._forget(sleeper)

    async def wait_for_sleepers(self, count: int = 1, *, timeout: Duration = "5s") -> None:
        """Wait for `count` sleepers, so that a test advances only when its subject is waiting.

        Raises:
            TimeoutError: there were fewer after `timeout` of real time.
        """
        async with asyncio.timeout(parse_seconds(timeout, what="timeout")):
            while self.sleepers < count:
                await asyncio.sleep(0.001)

    def advance(self, step: Duration) -> None:
        """Advance the time by `step`, and wake due sleepers in the order of their instants.

        Raises:
            InvalidOption: the step is not a duration, or negative.
        """
        by = to_ms(parse_duration(step, what="step"))
        with self._lock:
            self._now += by
            while self._sleepers and self._sleepers[0][0] <= self._now:
                *_, loop, future = heapq.heappop(self._sleepers)
                # A loop that has been closed has no sleepers.
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_wake, future)

    def _forget(self, sleeper: _Sleeper) -> None:
        with self._lock:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
