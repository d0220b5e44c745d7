"""Broadcasts in `local://PATH`: rows that everybody reads who listens, and that soon expire.

An announcement is a row in `broadcasts`, committed together with whatever else its process writes at the moment, and
never synced by itself. Each listener is rung for, and takes what came behind the last row that it has seen. So a
listener hears some milliseconds after the announcement. Where the ring is lost it hears within a second, which is how
often it looks anyway.

Bounds: a row is kept for 30 s, and of all rows the newest 10,000; a listener that is stopped for longer, or floods of
announcements, miss the rest. A process that has 1,000 announcements uncommitted, because the file is locked or the
disk slow, drops further ones.
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

__all__ = ["MAX_PENDING", "LocalListener", "last_broadcast", "write_broadcast"]

MAX_PENDING: Final = 1_000
_KEPT_MS: Final = 30_000
_KEPT_ROWS: Final = 10_000
_TICK: Final = 1.0
_READ_AT_ONCE: Final = 500

_Row = tuple[int, str, bytes]


def write_broadcast(connection: sqlite3.Connection, topic: str, body: bytes, now: int) -> None:
    """Announce, and forget what is too old or too much."""
    last = connection.execute(
        "INSERT INTO broadcasts (expires, topic, body) VALUES (?, ?, ?)", (now + _KEPT_MS, topic, body)
    ).lastrowid
    assert last is not None
    # Old rows have the lowest numbers: the first that is to be kept ends the scan.
    sql = "SELECT seq FROM broadcasts WHERE expires > ? ORDER BY seq LIMIT 1"
    first = connection.execute(sql, (now,)).fetchone()[0]
    connection.execute("DELETE FROM broadcasts WHERE seq < ?", (max(first, last - _KEPT_ROWS + 1),))


def last_broadcast(connection: sqlite3.Connection) -> int:
    """The number of the last announcement ever."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'broadcasts'").fetchone()
    return 0 if row is None else row[0]


class LocalListener:
    """A `taskmq.contracts.broker.Listening` that reads behind the announcement `since`.

    It has a name of its own, because each name has one bell of a kind.

    Raises:
        OSError: its bell cannot be made.
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
            self._wakeup = Wakeup(database.root, self._owner, "broadcasts", self.look)
        except OSError:
            self._owner.release()
            raise
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)

    def look(self) -> None:
        """Take what has been announced since the last look."""
        if self._is_stopped or self._reading is not None:
            self._was_rung = True
            return
        self._was_rung = False
        since = self._since
        self._reading = self._database.post(lambda connection: _read(connection, since), care=Care.READ)
        self._reading.add_done_callback(self._have_read)

    async def stop(self) -> None:
        self.end()

    def end(self) -> None:
        """Hear no more. May be called twice."""
        self._is_stopped = True
        self._ticker.cancel()
        self._wakeup.close()
        self._owner.release()

    def _on_tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)
        self.look()

    def _have_read(self, reading: asyncio.Future[list[_Row]]) -> None:
        self._reading = None
        if reading.cancelled() or reading.exception() is not None:
            # The next tick tries again.
            return
        rows = reading.result()
        for seq, topic, body in rows:
            self._since = seq
            if self._is_stopped:
                return
            if self._fits(topic):
                self._receive(topic, body)
        # What was rung for meanwhile is behind them, and so is what did not fit into one look.
        if rows or self._was_rung:
            self.look()


def _read(connection: sqlite3.Connection, since: int) -> list[_Row]:
    sql = "SELECT seq, topic, body FROM broadcasts WHERE seq > ? ORDER BY seq LIMIT ?"
    return connection.execute(sql, (since, _READ_AT_ONCE)).fetchall()
