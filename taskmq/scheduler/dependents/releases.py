"""Lets jobs go that waited for others.

    a report ends a job that others wait for -> wake -+
    half a second has gone                            +-> release, up to 500 dependencies a transaction -> ready
    there is more                                   --+

Every scheduler does so, for whichever jobs, and what one has in hand the others pass by: one that dies in the middle
has done nothing, and the next look of another one does it. What ended by an operator's hand is found by that look.
"""

import asyncio
import logging
from typing import Final

from taskmq.contracts.jobs import JobStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.wakeups import Wakeups

__all__ = ["DependentReleases"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class DependentReleases:
    """Lets jobs go that waited for others: a `Service`."""

    def __init__(self, store: JobStore, wakeups: Wakeups) -> None:
        self._dispatching = store.dispatching
        self._wakeups = wakeups
        self._is_stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._backoff = Backoff(_LOOK, _LONGEST_PAUSE)

    def wake(self) -> None:
        """A job has ended that others wait for."""
        self._woken.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Let jobs go until `stop`."""
        while not self._is_stopping.is_set():
            try:
                await self._release()
                self._backoff.reset()
            except StoreUnavailable as error:
                if not self._backoff.failures:
                    _log.warning("jobs that wait for others go on waiting: %s", error)
                await pause(self._is_stopping, self._backoff.next())
                continue
            await pause(self._woken, _LOOK)

    async def _release(self) -> None:
        self._woken.clear()
        is_more = True
        while is_more and not self._is_stopping.is_set():
            released = await self._dispatching.release_dependents()
            if released.queues:
                self._wakeups.wake_queues(released.queues)
            is_more = released.is_more
