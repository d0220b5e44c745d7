"""Due rows of a partition: read ahead, and fired at their time by the store's clock.

    once a second: rows due within 6 s -> at their instants, or at the next turn: fired, under the partition's epoch

Rows that changed in between are skipped, because firing compares them. An idle partition costs one poll a second, and
only a page of rows is in memory.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import ceil, inf
from typing import Final, Generic, Protocol, TypeVar

from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 1.0
_AHEAD: Final = 6.0
_FRESH: Final = 0.5
# Least seconds between two polls.
_SOONEST: Final = 0.01
# Loops that arrive within this time of each other share a turn.
_TOGETHER: Final = 0.001
_PAGE: Final = 5_000
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class DueRow(Protocol):
    """A row that is due at an instant (ms since the epoch)."""

    @property
    def due(self) -> int: ...


D = TypeVar("D", bound=DueRow)


class StoreClock:
    """An estimate of the store's clock, measured at most twice a second.

    Args:
        ask: returns the store's time in ms.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self._ask = ask
        # Seconds by which it is ahead of the loop's clock.
        self._offset = 0.0
        self._asked: float | None = None

    async def measure(self) -> None:
        """Measure the store's clock, unless that was just done.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        now = asyncio.get_running_loop().time
        began = now()
        if self._asked is None or began - self._asked >= _FRESH:
            # Ignores the duration of the answer, so that nothing is fired too early.
            self._offset = await self._ask() / 1000 - now()
            self._asked = began

    def now(self) -> float:
        """Return the seconds since the epoch, never ahead of the store's clock."""
        return asyncio.get_running_loop().time() + self._offset

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch, never ahead of the store's clock."""
        return int(self.now() * 1000)


class FiringPace:
    """Common pace of several loops: fire at once after a pause, else together at its end.

    Each firing costs a statement, a dispatch and messages.

    Args:
        seconds: length of the pause.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._opened = -inf

    async def turn(self, stop: asyncio.Event) -> None:
        """Wait for the next turn, or until `stop` is set."""
        now = asyncio.get_running_loop().time
        came = now()
        while not stop.is_set():
            passed = now() - self._opened
            if passed >= self._seconds:
                self._opened = now()
                return
            # A loop that waited for this turn gets it, even if it resumes late because the event loop was busy.
            if self._opened > came or passed < _TOGETHER:
                return
            await pause(stop, _round_up(self._seconds - passed))


class DueLoop(Generic[D]):
    """A service that fires the due rows of one partition.

    Args:
        what: name of the rows in log lines.
        clock: the store's clock.
        pace: pace shared with other loops.
        due: returns up to a number of rows due before an instant, earliest first.
        fire: called with due rows; called again with the same rows if it raises `StoreUnavailable`.
        batch: number of rows to fire together.
    """

    def __init__(
        self,
        what: str,
        *,
        clock: StoreClock,
        pace: FiringPace,
        due: Callable[[int, int], Awaitable[list[D]]],
        fire: Callable[[Sequence[D]], Awaitable[None]],
        batch: int,
    ) -> None:
        self._what = what
        self._clock = clock
        self._pace = pace
        self._find = due
        self._fire_batch = fire
        self._batch = batch
        self._due: deque[D] = deque()
        self._next_poll = 0.0
        self._earliest_poll = 0.0
        self._waking = asyncio.Event()
        self._is_stopping = asyncio.Event()

    def expect(self, seconds: float) -> None:
        """Poll after this many seconds, if that is before the next poll, because a row becomes due then."""
        at = max(self._now() + seconds, self._earliest_poll)
        if at < self._next_poll:
            self._next_poll = at
            self._waking.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._waking.set()

    async def run(self) -> None:
        """Fire due rows until `stop`."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        self._next_poll = self._now()
        while not self._is_stopping.is_set():
            self._waking.clear()
            try:
                if self._now() >= self._next_poll:
                    await self._poll()
                await self._fire()
                backoff.reset()
            except StoreUnavailable as error:
                _log.debug("%s: store unavailable, will retry: %s", self._what, error)
                await pause(self._is_stopping, backoff.next())
                continue
            await pause(self._waking, self._wait())

    async def _poll(self) -> None:
        asked = self._now()
        await self._clock.measure()
        due = await self._find(round((self._clock.now() + _AHEAD) * 1000), _PAGE)
        self._due = deque(due)
        self._next_poll = asked + _PERIOD
        self._earliest_poll = asked + _SOONEST
        if len(due) == _PAGE:
            # There may be more: poll again when most of these were fired.
            self._next_poll = min(self._next_poll, self._at(due[-1]))

    async def _fire(self) -> None:
        while self._due and self._is_due(self._due[0]):
            await self._pace.turn(self._is_stopping)
            if self._is_stopping.is_set():
                return
            batch: list[D] = []
            while self._due and self._is_due(self._due[0]) and len(batch) < self._batch:
                batch.append(self._due.popleft())
            try:
                await self._fire_batch(batch)
            except StoreUnavailable:
                self._due.extendleft(reversed(batch))
                raise

    def _is_due(self, row: DueRow) -> bool:
        return row.due / 1000 <= self._clock.now()

    def _wait(self) -> float:
        """Return the seconds until the next poll or due row."""
        at = min(self._next_poll, self._at(self._due[0])) if self._due else self._next_poll
        return _round_up(max(at - self._now(), 0.0))

    def _at(self, row: DueRow) -> float:
        """Return when a row is due, by the loop's clock."""
        return self._now() + row.due / 1000 - self._clock.now()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _round_up(seconds: float) -> float:
    """Round up to whole milliseconds, so that loops with that resolution do not wake too early."""
    return ceil(seconds * 1000) / 1000
