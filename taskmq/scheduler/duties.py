"""What one scheduler does for all: once an hour the store makes room for the days to come, and drops what is old.

The lease of it lasts for the hour and is not renewed: whoever takes it has the hour's turn.
"""

import asyncio
import logging
from typing import Final

from taskmq.contracts.jobs import JobStore
from taskmq.contracts.stores import Lease
from taskmq.durable.service import pause
from taskmq.errors import StateUnavailable, StoreUnavailable

__all__ = ["Duties"]

_log = logging.getLogger("taskmq.scheduler")

_DUTIES: Final = "duties"
_HOUR: Final = 3600.0
_LOOK: Final = 60.0


class Duties:
    """Does this hour's duties, if nobody else has: a `Service`."""

    def __init__(self, store: JobStore, *, me: str) -> None:
        self._store = store
        self._me = me
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Look once a minute whether the next turn is due, until `stop`."""
        while not self._is_stopping.is_set():
            await pause(self._is_stopping, await self._look())

    async def _look(self) -> float:
        """Seconds until the next look."""
        leases = self._store.dispatching.leases
        try:
            token = await leases.acquire(_DUTIES, owner=self._me, seconds=_HOUR)
            if isinstance(token, Lease):
                return min(max(token.left, 1.0), _LOOK)
            try:
                await self._store.dispatching.maintain()
            except StoreUnavailable:
                # Somebody else may have more luck; the lease may not be given back either.
                await leases.release(_DUTIES, token=token)
                raise
        except (StateUnavailable, StoreUnavailable) as error:
            _log.warning("the store's upkeep waits: %s", error)
        return _LOOK
