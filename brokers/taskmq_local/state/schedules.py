"""Records and definitions of schedules, in SQLite."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.stores import ChangedSchedule, KeptRecord, RecordChange
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase

_REMEMBERED: Final = 86_400_000
_FIND: Final = "SELECT version, value FROM schedule_records WHERE name = ? AND expires > ?"
_KEEP: Final = "INSERT OR REPLACE INTO schedule_records (name, version, value, expires) VALUES (?, ?, ?, ?)"
_DELETE_EXPIRED: Final = """
    DELETE FROM schedule_records WHERE name IN
    (SELECT name FROM schedule_records WHERE expires <= :now ORDER BY expires LIMIT 100)
"""
_DEFINITION: Final = "SELECT definition FROM schedules WHERE scope = ? AND name = ?"
# Places are never reused, so a reader that has read up to one cannot miss later ones.
_COUNT_ON: Final = "UPDATE counters SET value = value + 1 WHERE name = 'schedule' RETURNING value"
_NOTE: Final = "INSERT OR REPLACE INTO schedules (scope, name, place, at, definition) VALUES (?, ?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM schedules WHERE definition IS NULL AND at <= ?"
_CHANGED: Final = "SELECT name, place, definition FROM schedules WHERE scope = ? AND place > ? ORDER BY place LIMIT ?"


class LocalSchedules:
    """A `taskmq.contracts.stores.ScheduleStore`."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._listeners: set[Callable[[], None]] = set()

    async def read(self, names: Sequence[str]) -> list[KeptRecord | None]:
        now = self._clock.now_ms()

        def read(connection: sqlite3.Connection) -> list[KeptRecord | None]:
            return [_find(connection, name, now) for name in names]

        return await self._database.ask(read, care=Care.READ)

    async def swap(self, changes: Sequence[RecordChange], *, ttl: float) -> list[KeptRecord | None]:
        now = self._clock.now_ms()
        expires = now + round(ttl * 1000)

        def swap(connection: sqlite3.Connection) -> list[KeptRecord | None]:
            connection.execute(_DELETE_EXPIRED, {"now": now})
            answers: list[KeptRecord | None] = []
            for change in changes:
                found, after = _find(connection, change.name, now), change.after
                version = "" if found is None else found.version
                if version in (change.before, after.version):
                    connection.execute(_KEEP, (change.name, after.version, after.value, expires))
                    found = after
                answers.append(found)
            return answers

        return await self._database.ask(swap, care=Care.DURABLE)

    async def define(self, scope: str, name: str, *, before: bytes | None, after: bytes | None) -> bool:
        now = self._clock.now_ms()

        def define(connection: sqlite3.Connection) -> bool:
            kept = _definition(connection, scope, name)
            if kept == after:
                return True
            if kept != before:
                return False
            _note(connection, scope, name, after, now)
            return True

        return await self._database.ask(define, care=Care.DURABLE, wakeups=("schedules",))

    async def tell(self, scope: str, names: Sequence[str]) -> None:
        now = self._clock.now_ms()

        def tell(connection: sqlite3.Connection) -> None:
            for name in names:
                _note(connection, scope, name, _definition(connection, scope, name), now)

        await self._database.ask(tell, care=Care.DURABLE, wakeups=("schedules",))

    async def list_changed(self, scope: str, cursor: int, *, limit: int) -> list[ChangedSchedule]:
        def read(connection: sqlite3.Connection) -> list[ChangedSchedule]:
            return [ChangedSchedule(*row) for row in connection.execute(_CHANGED, (scope, cursor, limit)).fetchall()]

        return await self._database.ask(read, care=Care.READ)

    def listen(self, scope: str, heard: Callable[[], None]) -> Callable[[], None]:
        # One wakeup for all scopes: it may be spurious.
        del scope
        if not self._listeners:
            self._database.listen("schedules", self._notify)
        self._listeners.add(heard)
        return lambda: self._listeners.discard(heard)

    def _notify(self) -> None:
        for heard in tuple(self._listeners):
            heard()


def _find(connection: sqlite3.Connection, name: str, now: int) -> KeptRecord | None:
    row = connection.execute(_FIND, (name, now)).fetchone()
    return None if row is None else KeptRecord(*row)


def _definition(connection: sqlite3.Connection, scope: str, name: str) -> bytes | None:
    row = connection.execute(_DEFINITION, (scope, name)).fetchone()
    return None if row is None else row[0]


def _note(connection: sqlite3.Connection, scope: str, name: str, definition: bytes | None, now: int) -> None:
    cursor: int = connection.execute(_COUNT_ON).fetchall()[0][0]
    connection.execute(_NOTE, (scope, name, cursor, now, definition))
    connection.execute(_FORGET, (now - _REMEMBERED,))
