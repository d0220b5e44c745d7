"""Tables of `taskmq.db` in memory, for the stores that `memory://` shares with `local://`."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakSet

from taskmq.errors import StateUnavailable
from taskmq_embedded.memory import MEMORY, MemoryThread
from taskmq_embedded.work import Care, FileFailure, Work
from taskmq_local.database.loop_wakeup import LoopWakeup
from taskmq_local.database.schema import QUEUE_FILE
from taskmq_local.database.state_database import Kind, unavailable
from taskmq_local.memory.store import OpenState

T = TypeVar("T")

_TABLE_NAMES: Final = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('counters', 'queues')"

_numbers: Final = count(1)
# Emptied for their next user: opening takes longer than most tests use them.
_spare: Final[list[MemoryThread[sqlite3.Connection]]] = []
_tables: Final[WeakSet["MemoryTables"]] = WeakSet()


class MemoryTables:
    """The tables of one `memory://` name, created on first use, and the wakeups of their users on any thread.

    A forked child begins with empty tables.
    """

    def __init__(self) -> None:
        _tables.add(self)
        self._lock = threading.Lock()
        self._thread: MemoryThread[sqlite3.Connection] | None = None
        self._wakeups: list[tuple[Kind, LoopWakeup]] = []

    def ask(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call `function` with the connection in a transaction; return its answer."""
        with self._lock:
            if self._thread is None:
                self._thread = _open_tables()
            return self._thread.ask(function)

    def wake(self, kinds: Sequence[str]) -> None:
        for kind, wakeup in tuple(self._wakeups):
            if kind in kinds:
                wakeup.fire()

    def listen(self, kind: Kind, wakeup: LoopWakeup) -> None:
        with self._lock:
            self._wakeups.append((kind, wakeup))

    def stop_listening(self, wakeup: LoopWakeup) -> None:
        with self._lock:
            self._wakeups = [one for one in self._wakeups if one[1] is not wakeup]

    def leave_parent(self) -> None:
        """Leave the rows to the parent process, in a forked child."""
        # A thread of the parent may hold the lock.
        self._lock, self._thread = threading.Lock(), None

    def clear(self) -> None:
        with self._lock, suppress(FileFailure):
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.ask(_delete_rows)
                _spare.append(thread)


class MemoryDatabase:
    """A `taskmq_local.database.state_database.StateDatabase`: calls run immediately, work after the loop's turn."""

    def __init__(self, tables: MemoryTables, state: OpenState) -> None:
        self._tables = tables
        self._state = state
        self._wakeups: dict[Kind, LoopWakeup] = {}

    async def ask(
        self, function: Callable[[sqlite3.Connection], T], *, care: Care, wakeups: tuple[Kind, ...] = ()
    ) -> T:
        del care
        self._state.check()
        try:
            answer = self._tables.ask(function)
        except FileFailure as error:
            raise unavailable(error) from error
        self._tables.wake(wakeups)
        return answer

    def submit(self, work: Work[sqlite3.Connection]) -> None:
        self._state.check()
        asyncio.get_running_loop().call_soon(self._run, work)

    def too_late(self, seconds: float) -> StateUnavailable:
        return StateUnavailable(f"no answer within {seconds:g} s", is_certain=False)

    def listen(self, kind: Kind, heard: Callable[[], None]) -> None:
        if kind not in self._wakeups:
            self._wakeups[kind] = LoopWakeup(heard)
            self._tables.listen(kind, self._wakeups[kind])

    def close(self) -> None:
        """End the calls of listeners."""
        for wakeup in self._wakeups.values():
            self._tables.stop_listening(wakeup)

    def _run(self, work: Work[sqlite3.Connection]) -> None:
        work.seal()
        try:
            self._tables.ask(work.run)
        except Exception as error:  # noqa: BLE001 - the work's callers get it
            work.end(error)
        else:
            self._tables.wake(work.wakeups)
            work.end(None)


def _leave_parent() -> None:
    _spare.clear()
    for tables in _tables:
        tables.leave_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_parent)


def _open_tables() -> MemoryThread[sqlite3.Connection]:
    with suppress(IndexError):
        return _spare.pop()
    return MemoryThread(Path(f"{MEMORY}{next(_numbers)}"), QUEUE_FILE, nullcontext[sqlite3.Connection])


def _delete_rows(connection: sqlite3.Connection) -> None:
    for (name,) in connection.execute(_TABLE_NAMES).fetchall():
        connection.execute(f"DELETE FROM {name}")  # noqa: S608 - names of our tables
    connection.execute("UPDATE counters SET value = 0")
