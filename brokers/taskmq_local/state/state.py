"""The state of `local://PATH`, in the same file as the broker's messages."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskmq.contracts.broker import BrokerOptions
from taskmq.errors import StateUnavailable
from taskmq_local.database.database import Database
from taskmq_local.database.owners import Owner, collect_dead_owners
from taskmq_local.database.state_database import Kind
from taskmq_local.database.wakeup import Wakeup
from taskmq_local.state.checkpoints import LocalCheckpoints
from taskmq_local.state.claims import LocalClaims
from taskmq_local.state.crash_counts import LocalStarts
from taskmq_local.state.delays import LocalDelays
from taskmq_local.state.file_database import FileDatabase
from taskmq_local.state.leases import LocalLeases
from taskmq_local.state.limits import LocalLimits
from taskmq_local.state.progress import LocalProgress
from taskmq_local.state.results import LocalResults
from taskmq_local.state.revocations import LocalRevocations
from taskmq_local.state.schedules import LocalSchedules

_CLOSING: Final = 10.0


class LocalState:
    """A file, as used by one event loop of one process, with its own thread."""

    def __init__(self, address: str, path: Path, options: BrokerOptions) -> None:
        self.address = address
        self._database = Database(path, name=f"{options.name} state")
        self.results = LocalResults(self._database, options.clock, listen=self._listen, check_open=self._check_open)
        asking = FileDatabase(self._database, check_open=self._check_open, listen=self._listen_if_possible)
        self.starts = LocalStarts(asking, options.clock)
        self.delays = LocalDelays(asking, options.clock)
        self.revocations = LocalRevocations(asking, options.clock)
        self.schedules = LocalSchedules(asking, options.clock)
        self.leases = LocalLeases(asking, options.clock)
        self.limits = LocalLimits(asking, options.clock)
        self.claims = LocalClaims(asking, options.clock)
        self.progress = LocalProgress(asking, options.clock)
        self.checkpoints = LocalCheckpoints(asking, options.clock)
        self._owner: Owner | None = None
        self._wakeups: dict[Kind, Wakeup] = {}
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        if self._closing is None:
            self._is_closed = True
            self._closing = asyncio.get_running_loop().create_task(self._close())
        # A cancelled close continues and may be awaited again.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.results.close()
        await self._database.aclose(within=_CLOSING)
        for wakeup in self._wakeups.values():
            wakeup.close()
        if self._owner is not None:
            self._owner.release()

    def _listen(self) -> None:
        self._open_wakeup("results", self.results.poll)

    def _listen_if_possible(self, kind: Kind, heard: Callable[[], None]) -> None:
        # Without wakeups there is still the poll once a second.
        with suppress(StateUnavailable):
            self._open_wakeup(kind, heard)

    def _open_wakeup(self, kind: Kind, heard: Callable[[], None]) -> None:
        if kind in self._wakeups:
            return
        self._check_open()
        root = self._database.root
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._owner = self._owner or Owner(root)
            self._wakeups[kind] = Wakeup(root, self._owner, kind, heard)
        except OSError as error:
            raise StateUnavailable(f"{root}: {error}") from error
        collect_dead_owners(root)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateUnavailable(f"the state {self.address} was closed")
