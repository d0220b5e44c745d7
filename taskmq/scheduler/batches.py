"""Records in the store which batches the broker has confirmed and which have ended."""

import asyncio
import logging
from typing import Final

from taskmq.contracts.jobs import DispatchStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.partition import Ledger

_log = logging.getLogger("taskmq.scheduler")

# Batches within this time are written together; one that also ends in this time is only deleted. After a crash an
# unrecorded batch is published twice, which costs less than a statement for each batch.
_TOGETHER: Final = 0.1
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class BatchRecorder:
    """A service that records confirmed batches of a ledger in the store, and deletes ended ones."""

    def __init__(self, store: DispatchStore, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._ledger.has_news.set()

    async def run(self) -> None:
        """Write until `stop`, including everything known by then."""
        backoff = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            await self._ledger.has_news.wait()
            await pause(self._is_stopping, _TOGETHER)
            self._ledger.has_news.clear()
            try:
                await self._write()
                backoff.reset()
            except StoreUnavailable as error:
                _log.debug("recording confirmed batches failed, will retry: %s", error)
                if await pause(self._is_stopping, backoff.next()):
                    # The partition's next holder republishes unrecorded batches.
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
