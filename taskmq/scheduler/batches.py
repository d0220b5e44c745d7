"""The store's knowledge of batches: which ones the broker has confirmed, and which ones have ended."""

import asyncio
import logging
from typing import Final

from taskmq.contracts.jobs import DispatchStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.partition import Ledger

__all__ = ["BatchRecorder"]

_log = logging.getLogger("taskmq.scheduler")

# What comes within this time is written together: a batch that is not confirmed in the store is published twice after
# a crash, and a statement for each batch costs more than that.
_TOGETHER: Final = 0.02
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class BatchRecorder:
    """Writes to the store which batches of a ledger are confirmed, and forgets those that have ended: a `Service`."""

    def __init__(self, store: DispatchStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._ledger.has_news.set()

    async def run(self) -> None:
        """Write until `stop`; it ends with what is known by then."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            await self._ledger.has_news.wait()
            await pause(self._is_stopping, _TOGETHER)
            self._ledger.has_news.clear()
            try:
                await self._write()
                backoff.reset()
            except StoreUnavailable as error:
                _log.debug("writing confirmed batches to the store failed, trying again: %s", error)
                if await pause(self._is_stopping, backoff.next()):
                    # Its next holder publishes again what is not confirmed there.
                    return
                self._ledger.has_news.set()
            if self._is_stopping.is_set():
                return

    async def _write(self) -> None:
        ledger = self._ledger
        if empty := tuple(ledger.empty):
            await self._store.forget(empty)
            ledger.empty.difference_update(empty)
            ledger.confirmed.difference_update(empty)
        if confirmed := tuple(ledger.confirmed):
            await self._store.confirm(confirmed)
            ledger.confirmed.difference_update(confirmed)
