"""Periodic work: promoting due messages, and requeuing those of dead owners."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.database import Database
from taskmq_local.database.owners import Owner
from taskmq_local.database.state_database import Kind
from taskmq_local.database.tables import next_due, promote, reap
from taskmq_local.database.wakeup import Wakeup

_log = logging.getLogger("taskmq.local")

_TICK: Final = 1.0


class MaintenanceWork:
    """The work item that requeues messages of dead owners and promotes due ones.

    Attributes:
        next_due: the due time of the next delayed message.
    """

    care = Care.LOOSE

    def __init__(self, root: Path, clock: Clock, done: Callable[["MaintenanceWork", Exception | None], None]) -> None:
        self.next_due: int | None = None
        self.wakeups: tuple[Kind, ...] = ()
        self._root = root
        self._clock = clock
        self._on_end = done

    def seal(self) -> None:
        pass

    def run(self, connection: sqlite3.Connection) -> None:
        reaped = reap(connection, self._root)
        promoted = promote(connection, self._clock.now_ms())
        self.next_due = next_due(connection)
        self.wakeups = ("messages",) if reaped or promoted else ()
        if reaped:
            _log.warning("requeued %d message(s) of dead processes", reaped)

    def end(self, error: Exception | None) -> None:
        self._on_end(self, error)


class Maintenance:
    """Calls `poll` whenever messages may have become ready for this broker's consumers.

    That is after a wakeup, when a delayed message is due, and once a second in any case: a dead owner sends no
    wakeup, and wakeups may get lost.
    """

    def __init__(
        self, database: Database, clock: Clock, owner: Owner, *, poll: Callable[[], None], tick: Callable[[], None]
    ) -> None:
        self._database = database
        self._clock = clock
        self._owner = owner
        self._poll = poll
        self._tick = tick
        self._wakeups: list[Wakeup] = []
        self._ticker: asyncio.TimerHandle | None = None
        self._timer: asyncio.Task[None] | None = None
        self._due: int | None = None
        self._is_open = True
        self._is_pending = False

    def start(self) -> None:
        """Start to listen for wakeups.

        Raises:
            OSError: creating the wakeup files failed.
        """
        root = self._database.root
        self._wakeups.append(Wakeup(root, self._owner, "messages", self._poll))
        self._wakeups.append(Wakeup(root, self._owner, "delays", self.submit_upkeep))
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)
        self.submit_upkeep()

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._is_open = False
        if self._ticker is not None:
            self._ticker.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for wakeup in self._wakeups:
            wakeup.close()

    def submit_upkeep(self) -> None:
        """Promote due messages and requeue those of dead owners, in one of the next transactions."""
        if not self._is_pending and self._is_open:
            self._is_pending = True
            self._database.submit(MaintenanceWork(self._database.root, self._clock, self._on_end))

    def _on_tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)
        self._tick()
        self.submit_upkeep()
        self._poll()

    def _on_end(self, chores: MaintenanceWork, error: Exception | None) -> None:
        self._is_pending = False
        if error is None and self._is_open:
            self._set_timer(chores.next_due)

    def _set_timer(self, due: int | None) -> None:
        if due == self._due and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due is not None:
            self._timer = asyncio.get_running_loop().create_task(self._wake_at(due))

    async def _wake_at(self, due: int) -> None:
        await self._clock.sleep_until(due)
        self._timer = None
        self.submit_upkeep()
        self._poll()
