"""What is due at a slot: read ahead, and fired when its time has come, by the store's clock.

    once a second: what is due within 6 s -> at each instant, at most every 10 ms: fired, under the slot's epoch

What was changed in between stays as it is: firing compares. Between two looks this waits for the next instant, so a
slot where nothing is due costs one look a second, and however much the store has, a page of it is here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff

__all__ = ["DueLoop", "DueRow", "StoreClock"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 1.0
_AHEAD: Final = 6.0
_FRESH: Final = 0.5
_TICK: Final = 0.01
_PAGE: Final = 5_000
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class DueRow(Protocol):
    """Something that is due at an instant, ms since the epoch."""

    @property
    def due(self) -> int: ...


D = TypeVar("D", bound=DueRow)


class StoreClock:
    """The store's clock, as far as it is known here: asked once a second, for all that goes by it at one slot.

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


class DueLoop(Generic[D]):
    """Fires what is due at one slot: a `Service`.

    Args:
        what: for the log.
        clock: the store's.
        due: up to so many that are due before an instant, the first first.
        fire: called with those whose time has come; again with the same ones where it raises `StoreUnavailable`.
        batch: how many are fired together.
    """

    def __init__(
        self,
        what: str,
        *,
        clock: StoreClock,
        due: Callable[[int, int], Awaitable[list[D]]],
        fire: Callable[[Sequence[D]], Awaitable[None]],
        batch: int,
    ) -> None:
        self._what = what
        self._clock = clock
        self._find = due
        self._fire_batch = fire
        self._batch = batch
        self._due: deque[D] = deque()
        self._next_look = 0.0
        self._waking = asyncio.Event()
        self._is_stopping = asyncio.Event()

    def now_ms(self) -> int:
        """The store's clock, by its last answer: never ahead of it."""
        return int(self._clock.now() * 1000)

    def expect(self, seconds: float) -> None:
        """Something was given a time which is so far away: look when it comes, if that is before the next look."""
        at = self._now() + seconds
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
            # Never sooner than the next tick: what is due by then is fired together.
            await pause(self._is_stopping, _TICK)
            await pause(self._waking, max(self._next_instant() - self._now(), 0))

    async def _look(self) -> None:
        asked = self._now()
        await self._clock.measure()
        due = await self._find(round((self._clock.now() + _AHEAD) * 1000), _PAGE)
        self._due = deque(due)
        self._next_look = asked + _LOOK
        if len(due) == _PAGE:
            # There may be more: look again when most of these are gone.
            self._next_look = min(self._next_look, self._at(due[-1]))

    async def _fire(self) -> None:
        while self._due and not self._is_stopping.is_set():
            now = self._clock.now() * 1000
            batch: list[D] = []
            while self._due and self._due[0].due <= now and len(batch) < self._batch:
                batch.append(self._due.popleft())
            if not batch:
                return
            try:
                await self._fire_batch(batch)
            except StoreUnavailable:
                self._due.extendleft(reversed(batch))
                raise

    def _next_instant(self) -> float:
        if not self._due:
            return self._next_look
        return min(self._next_look, self._at(self._due[0]))

    def _at(self, row: DueRow) -> float:
        """When it is due, by the loop's clock."""
        return self._now() + row.due / 1000 - self._clock.now()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
