"""`local://PATH` as a state: results and occurrences beside the broker's messages, in the same file."""

import asyncio
from pathlib import Path
from typing import Final

from taskmq.broker import BrokerOptions
from taskmq.errors import StateUnavailable
from taskmq_local.database import Database
from taskmq_local.local_occurrences import LocalOccurrences
from taskmq_local.local_results import LocalResults
from taskmq_local.owners import Owner, sweep
from taskmq_local.wakeups import Bell

__all__ = ["LocalState"]

_CLOSING: Final = 10.0


class LocalState:
    """One file, as one event loop of one process sees it, with a thread of its own."""

    def __init__(self, address: str, path: Path, options: BrokerOptions) -> None:
        self.address = address
        self._database = Database(path, name=f"{options.name} state")
        self._results = LocalResults(self._database, options.clock, listen=self._listen, check_open=self._check_open)
        self._occurrences = LocalOccurrences(self._database, options.clock, check_open=self._check_open)
        self._owner: Owner | None = None
        self._bell: Bell | None = None
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def results(self) -> LocalResults:
        return self._results

    @property
    def occurrences(self) -> LocalOccurrences:
        return self._occurrences

    async def aclose(self) -> None:
        if self._closing is None:
            self._is_closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # A cancelled close goes on, and may be waited for again.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._results.close()
        await self._database.aclose(within=_CLOSING)
        if self._bell is not None:
            self._bell.close()
        if self._owner is not None:
            self._owner.release()

    def _listen(self) -> None:
        if self._bell is not None:
            return
        root = self._database.root
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._owner = self._owner or Owner(root)
            self._bell = Bell(root, self._owner, "results", self._results.look)
        except OSError as error:
            raise StateUnavailable(f"{root}: {error}") from error
        sweep(root)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateUnavailable(f"the state {self.address} was closed")
