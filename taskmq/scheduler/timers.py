"""Jobs of one slot whose time comes: read ahead, and fired when it has come, by the store's clock.

    once a second: what is due within 6 s -> at each instant, at most every 10 ms: FIRE, fenced -> their queues wake

One that is changed or cancelled in between stays as it is: firing compares. Between two looks this waits for the next
instant, so a slot without timers costs one look a second.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from taskmq.contracts.jobs import DispatchStore, DueJob, JobStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.slots import HeldLease
from taskmq.scheduler.status import SchedulerCounts

__all__ = ["Timers"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 1.0
_AHEAD: Final = 6.0
_TICK: Final = 0.01
_PAGE: Final = 5_000
_BATCH: Final = 500
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class Timers:
    """Fires the timers of one slot: a `Service`.

    Args:
        fired: called with the queues that have got jobs which are ready.
    """

    def __init__(
        self,
        store: JobStore,
        lease: HeldLease,
        *,
        fired: Callable[[set[str]], None],
        counts: SchedulerCounts,
    ) -> None:
        self._store = store
        self._dispatching: DispatchStore = store.dispatching
        self._lease = lease
        self._fired = fired
        self._counts = counts
        self._due: deque[DueJob] = deque()
        self._next_look = 0.0
        # The store's clock is so many seconds ahead of the loop's.
        self._offset = 0.0
        self._waking = asyncio.Event()
        self._is_stopping = asyncio.Event()

    def expect(self, seconds: float) -> None:
        """A job was given a time which is so far away: look when it comes, if that is before the next look."""
        at = self._now() + seconds
        if at < self._next_look:
            self._next_look = at
            self._waking.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._waking.set()

    async def run(self) -> None:
        """Fire until `stop`."""
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
                _log.debug("slot %d: jobs whose time comes wait for the store: %s", self._lease.slot, error)
                await pause(self._is_stopping, backoff.next())
                continue
            # Never sooner than the next tick: what is due by then is fired together.
            await pause(self._is_stopping, _TICK)
            await pause(self._waking, max(self._next_instant() - self._now(), 0))

    async def _look(self) -> None:
        asked = self._now()
        now = await self._store.now_ms()
        # As if the answer had taken no time: nothing is fired too early.
        self._offset = now / 1000 - self._now()
        due = await self._dispatching.due(self._lease.slot, until=now + round(_AHEAD * 1000), limit=_PAGE)
        self._due = deque(due)
        self._next_look = asked + _LOOK
        if len(due) == _PAGE:
            # There may be more: look again when most of these are gone.
            self._next_look = min(self._next_look, due[-1].due / 1000 - self._offset)

    async def _fire(self) -> None:
        while self._due and not self._is_stopping.is_set():
            now = (self._now() + self._offset) * 1000
            batch: list[DueJob] = []
            while self._due and self._due[0].due <= now and len(batch) < _BATCH:
                batch.append(self._due.popleft())
            if not batch:
                return
            try:
                queues = await self._dispatching.fire(self._lease.slot, self._lease.epoch, batch)
            except StoreUnavailable:
                self._due.extendleft(reversed(batch))
                raise
            self._counts.fired += len(batch)
            if queues:
                self._fired(queues)

    def _next_instant(self) -> float:
        if not self._due:
            return self._next_look
        return min(self._next_look, self._due[0].due / 1000 - self._offset)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
