"""Journal writer of tasks that are called as plain functions, outside of a worker."""

import asyncio
from typing import Final

from taskmq.contracts.stores import BegunRun
from taskmq.contracts.system_clock import SystemClock
from taskmq.model.units import Duration
from taskmq.run.journal import RunJournal, check_size
from taskmq.run.locks import Lock, OwnLeases


class DetachedWriter:
    """A writer that keeps everything until the call ends."""

    def __init__(self) -> None:
        self._leases = OwnLeases()

    def mark_changed(self, journal: RunJournal) -> None:
        journal.is_dirty = False

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    async def begin(self, journal: RunJournal) -> BegunRun:
        return self.begin_blocking(journal)

    async def save(self, journal: RunJournal, name: str, value: bytes) -> None:
        self.save_blocking(journal, name, value)

    def lock(self, name: str, *, owner: str, timeout: Duration | None, lease: Duration) -> Lock:
        leases = self._leases
        return Lock(name, leases=lambda: leases, call=asyncio.run, owner=owner, timeout=timeout, lease=lease)

    def begin_blocking(self, journal: RunJournal) -> BegunRun:
        if journal.run is None:
            journal.run = BegunRun(0, {})
        return journal.run

    def save_blocking(self, journal: RunJournal, name: str, value: bytes) -> None:
        check_size(name, value)
        self.begin_blocking(journal).values[name] = value


DETACHED: Final = DetachedWriter()
