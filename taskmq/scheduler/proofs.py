"""Proofs that tokens were given out by this store, for invitations on their way.

The keys are the store's (`taskmq.model.jobs.proofs`). They are read before the first partition is taken, and again
each half a minute: by then every scheduler uses a new key. What an older one has proven meanwhile is as good.
"""

import asyncio
import logging
from typing import Final

from taskmq.contracts.jobs import DispatchStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.jobs.proofs import ReportKey

__all__ = ["InvitationProofs"]

_log = logging.getLogger("taskmq.scheduler")

_LOOK: Final = 30.0


class InvitationProofs:
    """Proves invitations by the newest key of the store: a `Service`."""

    def __init__(self, store: DispatchStore) -> None:
        self._store = store
        self._key: ReportKey | None = None
        self._is_stopping = asyncio.Event()

    def prove(self, job_id: str, token: int, reports: str) -> str:
        """The proof for one dispatch; `read` has to have been called."""
        assert self._key is not None, "the keys were not read"
        return self._key.prove(job_id, token, reports)

    async def read(self) -> None:
        """Read the keys, and use the newest one from now on.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        before, self._key = self._key, (await self._store.report_keys())[0]
        if before is not None and before.id != self._key.id:
            _log.info("invitations are proven by key %s from now on", self._key.id)

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Look each half a minute whether there is a new key, until `stop`."""
        while not await pause(self._is_stopping, _LOOK):
            try:
                await self.read()
            except StoreUnavailable as error:
                _log.debug("the keys of reports are looked at later: %s", error)
