"""Broadcasts in `local://PATH`: rows that all listeners read and that soon expire.

An announcement is a row in `broadcasts`, committed with its process's other writes at the moment and never synced for
itself. Each listener gets a wakeup and reads the rows after the last one it has seen, some milliseconds after the
announcement. If the wakeup is lost, the listener's poll finds the rows within a second.

Bounds: a row is kept for 30 s, and only the newest 10,000 rows are kept. A listener that is stopped for longer, or
flooded, misses the rest. If the file is locked or the disk slow, a process with 1,000 uncommitted announcements drops
further ones.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection
from typing import Final

from taskmq_embedded.work import Care
from taskmq_local.database.database import Database
from taskmq_local.database.owners import Owner
from taskmq_local.database.wakeup import Wakeup
from taskmq_local.rules.topics import matcher

MAX_PENDING: Final = 1_000
_KEPT_MS: Final = 30_000
_KEPT_ROWS: Final = 10_000
_TICK: Final = 1.0
_READ_AT_ONCE: Final = 500

_Row = tuple[int, str, bytes]


def write_broadcast(connection: sqlite3.Connection, topic: str, body: bytes, now: int) -> None:
    """Insert the announcement, and delete rows that are too old or too many."""
    last = connection.execute(
        "INSERT INTO broadcasts (expires, topic, body) VALUES (?, ?, ?)", (now + _KEPT_MS, topic, body)
    ).lastrowid
    assert last is not None
    # Old rows have the lowest numbers: the scan ends at the first row to keep.
    sql = "SELECT seq FROM broadcasts WHERE expires > ? ORDER BY seq LIMIT 1"
    first = connection.execute(sql, (now,)).fetchone()[0]
    connection.execute("DELETE FROM broadcasts WHERE seq < ?", (max(first, last - _KEPT_ROWS + 1),))


def last_broadcast(connection: sqlite3.Connection) -> int:
    """Return the number of the last announcement ever made."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'broadcasts'").fetchone()
    return 0 if row is None else row[0]


class LocalListener:
    """A `taskmq.contracts.broker.Listening` that reads after the announcement `since`.

    It has a separate owner name, because each name has one wakeup per kind.

    Raises:
        OSError: creating its wakeup failed.
    """

    def __init__(
        self,
        database: Database,
        patterns: Collection[str],
        receive: Callable[[str, bytes], None],
        *,
        since: int,
    ) -> None:
        self._database = database
        self._fits = matcher(patterns)
        self._receive = receive
        self._since = since
        self._reading: asyncio.Future[list[_Row]] | None = None
        self._was_rung = False
        self._is_stopped = False
        self._owner = Owner(database.root)
        try:
            self._wakeup = Wakeup(database.root, self._owner, "broadcasts", self.poll)
        except OSError:
            self._owner.release()
            raise
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)

    def poll(self) -> None:
        """Read the announcements made since the last poll."""
        if self._is_stopped or self._reading is not None:
            self._was_rung = True
            return
        self._was_rung = False
        since = self._since
        self._reading = self._database.post(lambda connection: _read(connection, since), care=Care.READ)
        self._reading.add_done_callback(self._on_read)

    async def stop(self) -> None:
        self.end()

    def end(self) -> None:
        """Stop listening. May be called twice."""
        self._is_stopped = True
        self._ticker.cancel()
        self._wakeup.close()
        self._owner.release()

    def _on_tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)
        self.poll()

    def _on_read(self, reading: asyncio.Future[list[_Row]]) -> None:
        self._reading = None
        if reading.cancelled() or reading.exception() is not None:
            # The next tick retries.
            return
        rows = reading.result()
        for seq, topic, body in rows:
            self._since = seq
            if self._is_stopped:
                return
            if self._fits(topic):
                self._receive(topic, body)
        # Later announcements, and those beyond the limit of one poll, are still unread.
        if rows or self._was_rung:
            self.poll()


def _read(connection: sqlite3.Connection, since: int) -> list[_Row]:
    sql = "SELECT seq, topic, body FROM broadcasts WHERE seq > ? ORDER BY seq LIMIT ?"
    return connection.execute(sql, (since, _READ_AT_ONCE)).fetchall()
