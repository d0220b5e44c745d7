"""Numbers of names: rows repeat the few names of tenants, queues, tasks and workers."""

import sqlite3
from collections.abc import Iterable

from taskmq.model.units import storable


class Names:
    """Numbers of names, as far as this connection has read them. A committed name keeps its number."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._fresh: list[str] = []

    def keep(self) -> None:
        """Keep the new names of a committed transaction."""
        self._fresh.clear()

    def drop(self) -> None:
        """Forget the new names of a transaction that rolled back."""
        for name in self._fresh:
            self._names.pop(self._ids.pop(name, 0), None)
        self._fresh.clear()

    def id(self, connection: sqlite3.Connection, name: str) -> int:
        """Return the number of a name; assign one if it has none."""
        if (found := self._ids.get(name)) is not None:
            return found
        if (found := self.find(connection, name)) is not None:
            return found
        cursor = connection.execute("INSERT INTO name (name) VALUES (?) RETURNING id", (storable(name),))
        return self._see(storable(name), cursor.fetchall()[0][0])

    def find(self, connection: sqlite3.Connection, name: str) -> int | None:
        """Return the number of a name; None if it has none."""
        if (found := self._ids.get(name)) is not None:
            return found
        name = storable(name)
        rows = connection.execute("SELECT id FROM name WHERE name = ?", (name,)).fetchall()
        return self._see(name, rows[0][0]) if rows else None

    def find_all(self, connection: sqlite3.Connection, names: Iterable[str]) -> list[int]:
        """Return the numbers of the names that have one."""
        found = (self.find(connection, name) for name in names)
        return [number for number in found if number is not None]

    def name(self, connection: sqlite3.Connection, number: int) -> str:
        """Return the name of a number."""
        if (found := self._names.get(number)) is not None:
            return found
        name: str = connection.execute("SELECT name FROM name WHERE id = ?", (number,)).fetchone()[0]
        self._see(name, number)
        return name

    def _see(self, name: str, number: int) -> int:
        self._ids[name] = number
        self._names[number] = name
        self._fresh.append(name)
        return number
