"""Release of jobs that waited for others.

    a report ends a job that others wait for -> wake -+
    half a second has passed                          +-> release, up to 500 dependencies per transaction -> ready
    more are left                                   --+

Every scheduler releases dependents of any partition, and skips rows that another one has locked. If a scheduler dies,
its transaction has no effect, and another one repeats it. The poll also finds jobs that operators ended.
"""

import asyncio
import logging
from typing import Final

from taskmq.contracts.jobs import JobStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.wakeups import Wakeups

_log = logging.getLogger("taskmq.scheduler")

_POLL: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class DependentReleases:
    """A service that releases jobs that waited for others."""

    def __init__(self, store: JobStore, wakeups: Wakeups) -> None:
        self._dispatching = store.dispatching
        self._wakeups = wakeups
        self._is_stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._backoff = Backoff(_POLL, _LONGEST_PAUSE)

    def wake(self) -> None:
        """Release dependents at once: a job that others wait for has ended."""
        self._woken.set()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Release dependents until `stop`."""
        while not self._is_stopping.is_set():
            try:
                await self._release()
                self._backoff.reset()
            except StoreUnavailable as error:
                if not self._backoff.failures:
                    _log.warning("store unavailable, dependent jobs keep waiting: %s", error)
                await pause(self._is_stopping, self._backoff.next())
                continue
            await pause(self._woken, _POLL)

    async def _release(self) -> None:
        self._woken.clear()
        is_more = True
        while is_more and not self._is_stopping.is_set():
            released = await self._dispatching.release_dependents()
            if released.queues:
                self._wakeups.wake_queues(released.queues)
            is_more = released.is_more
