"""Due rows of a partition: read ahead, and fired at their time by the store's clock.

    once a second: what is due within 6 s -> at its instant, or at the next turn: fired, under the partition's epoch

What was changed in between stays as it is: firing compares. Between two looks this waits for the next instant, so a
partition where nothing is due costs one look a second, and however much the store has, a page of it is here.
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

__all__ = ["DueLoop", "DueRow", "FiringPace", "StoreClock"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 1.0
_AHEAD: Final = 6.0
_FRESH: Final = 0.5
# Whatever is expected, so much time is between two looks.
_SOONEST: Final = 0.01
# Loops that come within this time of each other have the same turn.
_TOGETHER: Final = 0.001
_PAGE: Final = 5_000
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class DueRow(Protocol):
    """Something that is due at an instant, ms since the epoch."""

    @property
    def due(self) -> int: ...


D = TypeVar("D", bound=DueRow)


class StoreClock:
    """The store's clock, as far as it is known here: asked once a second, for all that goes by it.

    Args:
        ask: the store.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self._ask = ask
        # It is so many seconds ahead of the loop's.
        self._offset = 0.0
        self._asked: float | None = None

    async def measure(self) -> None:
        """Ask the store, if that was not done just now.

        Raises:
            StoreUnavailable: it could not be reached.
        """
        now = asyncio.get_running_loop().time
        began = now()
        if self._asked is None or began - self._asked >= _FRESH:
            # As if the answer had taken no time: nothing is fired too early.
            self._offset = await self._ask() / 1000 - now()
            self._asked = began

    def now(self) -> float:
        """Seconds since the epoch: never ahead of the store's."""
        return asyncio.get_running_loop().time() + self._offset

    def now_ms(self) -> int:
        """Milliseconds since the epoch: never ahead of the store's."""
        return int(self.now() * 1000)


class FiringPace:
    """When loops fire: at once where none of them has for a while, else all of them together when that is over.

    Each firing is a statement, and what follows it: a dispatch, messages, and what these wait for.

    Args:
        seconds: how long that is.
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
            # A loop that has waited for this turn has it, also where it comes back late because others kept it busy.
            if self._opened > came or passed < _TOGETHER:
                return
            await pause(stop, _whole(self._seconds - passed))


class DueLoop(Generic[D]):
    """Fires what is due at one partition: a `Service`.

    Args:
        what: for the log.
        clock: the store's.
        pace: of it, and of other loops that fire together with it.
        due: up to so many that are due before an instant, the first first.
        fire: called with those whose time has come; again with the same ones where it raises `StoreUnavailable`.
        batch: how many are fired together.
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
        self._next_look = 0.0
        self._earliest_look = 0.0
        self._waking = asyncio.Event()
        self._is_stopping = asyncio.Event()

    def expect(self, seconds: float) -> None:
        """Something was given a time which is so far away: look when it comes, if that is before the next look."""
        at = max(self._now() + seconds, self._earliest_look)
        if at < self._next_look:
            self._next_look = at
            self._waking.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._waking.set()

    async def run(self) -> None:
        """Fire what is due until `stop`."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        self._next_look = self._now()
        while not self._is_stopping.is_set():
            self._waking.clear()
            try:
                if self._now() >= self._next_look:
                    await self._look()
                await self._fire()
                backoff.reset()
            except StoreUnavailable as error:
                _log.debug("%s wait for the store: %s", self._what, error)
                await pause(self._is_stopping, backoff.next())
                continue
            await pause(self._waking, self._wait())

    async def _look(self) -> None:
        asked = self._now()
        await self._clock.measure()
        due = await self._find(round((self._clock.now() + _AHEAD) * 1000), _PAGE)
        self._due = deque(due)
        self._next_look = asked + _LOOK
        self._earliest_look = asked + _SOONEST
        if len(due) == _PAGE:
            # There may be more: look again when most of these are gone.
            self._next_look = min(self._next_look, self._at(due[-1]))

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
        """Seconds until there is something to do."""
        at = min(self._next_look, self._at(self._due[0])) if self._due else self._next_look
        return _whole(max(at - self._now(), 0.0))

    def _at(self, row: DueRow) -> float:
        """When it is due, by the loop's clock."""
        return self._now() + row.due / 1000 - self._clock.now()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _whole(seconds: float) -> float:
    """As milliseconds that a loop which counts by them does not end too early."""
    return ceil(seconds * 1000) / 1000
