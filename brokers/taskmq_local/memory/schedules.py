"""Records and definitions of schedules, in this process."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from taskmq.contracts.stores import ChangedSchedule, KeptRecord, RecordChange
from taskmq.model.clock import Clock
from taskmq_local.database.loop_wakeup import call_on

_REMEMBERED: Final = 86_400_000


class _Change(msgspec.Struct, frozen=True):
    cursor: int
    at: int
    definition: bytes | None


class ScheduleTable:
    """Schedules of one `MemoryData`; usable from any thread. Instants are milliseconds of the caller's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, tuple[KeptRecord, int]] = {}
        self._changes: dict[str, dict[str, _Change]] = {}
        self._last_place = 0
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    def read(self, names: Sequence[str], *, now: int) -> list[KeptRecord | None]:
        with self._lock:
            return [self._find(name, now) for name in names]

    def swap(self, changes: Sequence[RecordChange], *, expires: int, now: int) -> list[KeptRecord | None]:
        answers: list[KeptRecord | None] = []
        with self._lock:
            for change in changes:
                found = self._find(change.name, now)
                version = "" if found is None else found.version
                if version in (change.before, change.after.version):
                    self._records[change.name] = (found := change.after, expires)
                answers.append(found)
        return answers

    def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None, now: int) -> bool:
        with self._lock:
            known = self._changes.get(scope, {}).get(name)
            kept = None if known is None else known.definition
            if kept != after:
                if kept != before:
                    return False
                self._note(scope, name, after, now)
        self._notify(scope)
        return True

    def tell(self, scope: str, names: Sequence[str], *, now: int) -> None:
        with self._lock:
            changes = self._changes.get(scope, {})
            for name in names:
                self._note(scope, name, changes[name].definition if name in changes else None, now)
        self._notify(scope)

    def changes_since(self, scope: str, cursor: int, *, limit: int) -> list[ChangedSchedule]:
        with self._lock:
            found = [
                ChangedSchedule(name, change.cursor, change.definition)
                for name, change in self._changes.get(scope, {}).items()
                if change.cursor > cursor
            ]
        return sorted(found, key=lambda change: change.cursor)[:limit]

    def listen(self, scope: str, listener: Callable[[], None]) -> None:
        with self._lock:
            self._listeners.setdefault(scope, []).append(listener)

    def stop_listening(self, scope: str, listener: Callable[[], None]) -> None:
        with self._lock:
            listeners = self._listeners.get(scope, [])
            if listener in listeners:
                listeners.remove(listener)

    def clear(self) -> None:
        with self._lock:
            self._records.clear()
            self._changes.clear()

    def _find(self, name: str, now: int) -> KeptRecord | None:
        kept = self._records.get(name)
        if kept is None:
            return None
        if kept[1] <= now:
            del self._records[name]
            return None
        return kept[0]

    def _note(self, scope: str, name: str, definition: bytes | None, now: int) -> None:
        changes = self._changes.setdefault(scope, {})
        self._last_place += 1
        changes[name] = _Change(self._last_place, now, definition)
        for gone in [
            name for name, change in changes.items() if change.definition is None and change.at <= now - _REMEMBERED
        ]:
            del changes[gone]

    def _notify(self, scope: str) -> None:
        with self._lock:
            listeners = tuple(self._listeners.get(scope, ()))
        for listener in listeners:
            listener()


class MemorySchedules:
    """A `taskmq.contracts.stores.ScheduleStore`.

    Args:
        check_open: raises if the state was closed.
    """

    def __init__(self, table: ScheduleTable, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._check_open = check_open

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        self._check_open()
        return self._table.read(names, now=self._clock.now_ms())

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        self._check_open()
        now = self._clock.now_ms()
        return self._table.swap(changes, expires=now + round(ttl * 1000), now=now)

    async def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        self._check_open()
        return self._table.define(scope, name, before=before, after=after, now=self._clock.now_ms())

    async def tell(self, scope: str, names: Sequence[str]) -> None:
        self._check_open()
        self._table.tell(scope, names, now=self._clock.now_ms())

    async def list_changed(self, scope: str, cursor: int, *, limit: int) -> list[ChangedSchedule]:
        self._check_open()
        return self._table.changes_since(scope, cursor, limit=limit)

    def listen(self, scope: str, heard: Callable[[], None]) -> Callable[[], None]:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()

        def notify() -> None:
            call_on(loop, thread, heard)

        self._table.listen(scope, notify)
        return lambda: self._table.stop_listening(scope, notify)
