"""Queues that operators have paused, as far as a scheduler has to hold to it: those whose jobs it places on nodes.

Workers hold to the pauses of the queues that they consume. The jobs of a queue that is `placed` go to the queues of
nodes, so no worker can tell them from those of other queues: the scheduler places none while their queue is paused.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from taskmq.client.queues import paused_queues
from taskmq.contracts.stores import ScheduleStore
from taskmq.durable.service import pause
from taskmq.errors import StateUnavailable

__all__ = ["PlacedPauses"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 5.0


class PlacedPauses:
    """Reads from the state which queues are paused: a `Service`.

    While the state does not answer, what was known last holds.

    Args:
        changed: called when queues were paused or resumed.
    """

    def __init__(self, store: ScheduleStore, *, changed: Callable[[], None]) -> None:
        self._store = store
        self._changed = changed
        self._paused: Collection[str] = frozenset()
        self._has_trouble = False
        self._is_stopping = asyncio.Event()

    def is_paused(self, queue: str) -> bool:
        """Whether the queue is paused, as far as is known here."""
        return queue in self._paused

    async def look(self) -> None:
        """Read the state once; return also where it does not answer."""
        try:
            paused = frozenset(await paused_queues(self._store))
        except StateUnavailable as error:
            if not self._has_trouble:
                _log.warning("the state does not say which queues are paused, what was known last holds: %s", error)
            self._has_trouble = True
            return
        self._has_trouble = False
        if paused != self._paused:
            self._paused = paused
            self._changed()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Look every few seconds, until `stop`."""
        while not await pause(self._is_stopping, _LOOK):
            await self.look()
