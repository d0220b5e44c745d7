"""Records and definitions of schedules, in this process."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from taskmq.contracts.stores import ChangedSchedule, KeptRecord, RecordChange
from taskmq_local.database.loop_wakeup import call_on
from taskmq_local.memory.store import Expiring, MemoryStore

_REMEMBERED: Final = 86_400_000


class _Change(msgspec.Struct, frozen=True):
    cursor: int
    at: int
    definition: bytes | None


class ScheduleData(Expiring[KeptRecord]):
    """Records by name, and the last change of each definition by scope and name.

    Attributes:
        listeners: calls after a change in a scope, from any thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: dict[str, dict[str, _Change]] = {}
        self.listeners: dict[str, list[Callable[[], None]]] = {}

    def add_change(self, scope: str, name: str, definition: bytes | None, *, now: int) -> None:
        """Record a change, and forget removals of the day before."""
        changes = self.changes.setdefault(scope, {})
        changes[name] = _Change(self.next_token(), now, definition)
        for gone in [
            name for name, change in changes.items() if change.definition is None and change.at <= now - _REMEMBERED
        ]:
            del changes[gone]

    def notify(self, scope: str) -> None:
        """Call the listeners of the scope, without the lock."""
        with self.lock:
            listeners = tuple(self.listeners.get(scope, ()))
        for listener in listeners:
            listener()

    def clear(self) -> None:
        super().clear()
        self.changes.clear()


class MemorySchedules(MemoryStore[ScheduleData]):
    """A `taskmq.contracts.stores.ScheduleStore`."""

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        now = self._enter()
        with self._data.lock:
            return [self._data.find(name, now=now) for name in names]

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        now = self._enter()
        answers: list[KeptRecord | None] = []
        with self._data.lock:
            for change in changes:
                found = self._data.find(change.name, now=now)
                version = "" if found is None else found.version
                if version in (change.before, change.after.version):
                    found = change.after
                    self._data.put(change.name, found, expires=now + round(ttl * 1000))
                answers.append(found)
        return answers

    async def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        now = self._enter()
        with self._data.lock:
            known = self._data.changes.get(scope, {}).get(name)
            kept = None if known is None else known.definition
            if kept != after:
                if kept != before:
                    return False
                self._data.add_change(scope, name, after, now=now)
        self._data.notify(scope)
        return True

    async def tell(self, scope: str, names: Sequence[str]) -> None:
        now = self._enter()
        with self._data.lock:
            changes = self._data.changes.get(scope, {})
            for name in names:
                definition = changes[name].definition if name in changes else None
                self._data.add_change(scope, name, definition, now=now)
        self._data.notify(scope)

    async def list_changed(self, scope: str, cursor: int, *, limit: int) -> list[ChangedSchedule]:
        self._enter()
        with self._data.lock:
            found = [
                ChangedSchedule(name, change.cursor, change.definition)
                for name, change in self._data.changes.get(scope, {}).items()
                if change.cursor > cursor
            ]
        return sorted(found, key=lambda change: change.cursor)[:limit]

    def listen(self, scope: str, heard: Callable[[], None]) -> Callable[[], None]:
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        listeners = self._data.listeners

        def notify() -> None:
            call_on(loop, thread, heard)

        def stop() -> None:
            with self._data.lock:
                if notify in listeners[scope]:
                    listeners[scope].remove(notify)

        with self._data.lock:
            listeners.setdefault(scope, []).append(notify)
        return stop
