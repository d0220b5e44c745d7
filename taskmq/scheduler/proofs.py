"""Proofs for invitations that their tokens were issued by this store.

The keys belong to the store (`taskmq.model.jobs.proofs`). They are read before the first partition is acquired, and
then every half a minute, so every scheduler soon uses a new key. Proofs made with older keys stay valid.
"""

import asyncio
import logging
from typing import Final

from taskmq.contracts.jobs import DispatchStore
from taskmq.durable.service import pause
from taskmq.errors import StoreUnavailable
from taskmq.model.jobs.proofs import ReportKey

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 30.0


class InvitationProofs:
    """A service that proves invitations with the store's newest key."""

    def __init__(self, store: DispatchStore) -> None:
        self._store = store
        self._key: ReportKey | None = None
        self._is_stopping = asyncio.Event()

    def prove(self, job_id: str, token: int, reports: str) -> str:
        """Return the proof for one dispatch. `read` must have been called before."""
        assert self._key is not None, "the keys were not read"
        return self._key.prove(job_id, token, reports)

    async def read(self) -> None:
        """Read the keys, and use the newest one from now on.

        Raises:
            StoreUnavailable: the store cannot be reached.
        """
        before, self._key = self._key, (await self._store.report_keys())[0]
        if before is not None and before.id != self._key.id:
            _log.info("using key %s to prove invitations", self._key.id)

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Read the keys every half a minute, until `stop`."""
        while not await pause(self._is_stopping, _PERIOD):
            try:
                await self.read()
            except StoreUnavailable as error:
                _log.debug("reading the report keys failed, will retry: %s", error)
