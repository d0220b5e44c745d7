"""Leases on keys, in SQLite. One counter issues all tokens."""

import sqlite3
from typing import Final

from taskmq.contracts.stores import Lease, members_prefix
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase

_DELETE_ENDED: Final = """
    DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE until <= :now ORDER BY until LIMIT 100)
"""
_LOOK: Final = "SELECT owner, token, until, note FROM keys WHERE key = :key AND until > :now"
_MEMBERS: Final = """
    SELECT owner, token, until, note, key FROM keys
    WHERE substr(key, 1, length(:prefix)) = :prefix AND until > :now ORDER BY key
"""
_COUNT_ON: Final = "UPDATE counters SET value = value + 1 WHERE name = 'lease' RETURNING value"
_TAKE: Final = (
    "INSERT OR REPLACE INTO keys (key, owner, token, until, note) VALUES (:key, :owner, :token, :until, :note)"
)
_RENEW: Final = """
    UPDATE keys SET until = :until, note = ifnull(:note, note) WHERE key = :key AND token = :token AND until > :now
"""


class LocalLeases:
    """A `taskmq.contracts.stores.Coordinator`."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        now = self._clock.now_ms()

        def take(connection: sqlite3.Connection) -> int | Lease:
            if (held := _find(connection, key, now)) is not None:
                return held
            connection.execute(_DELETE_ENDED, {"now": now})
            token: int = connection.execute(_COUNT_ON).fetchall()[0][0]
            facts = {"key": key, "owner": owner, "token": token, "until": now + round(seconds * 1000), "note": note}
            connection.execute(_TAKE, facts)
            return token

        return await self._database.ask(take, care=Care.DURABLE)

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        now = self._clock.now_ms()
        facts = {"key": key, "token": token, "until": now + round(seconds * 1000), "note": note, "now": now}

        def renew(connection: sqlite3.Connection) -> bool:
            return connection.execute(_RENEW, facts).rowcount == 1

        return await self._database.ask(renew, care=Care.DURABLE)

    async def release(self, key: str, *, token: int) -> None:
        def release(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM keys WHERE key = ? AND token = ?", (key, token))

        await self._database.ask(release, care=Care.LOOSE)

    async def find(self, key: str) -> Lease | None:
        now = self._clock.now_ms()
        return await self._database.ask(lambda connection: _find(connection, key, now), care=Care.LOOSE)

    async def members(self, group: str) -> dict[str, Lease]:
        now, prefix = self._clock.now_ms(), members_prefix(group)

        def read(connection: sqlite3.Connection) -> dict[str, Lease]:
            rows = connection.execute(_MEMBERS, {"prefix": prefix, "now": now}).fetchall()
            return {row[4].removeprefix(prefix): _lease(row[:4], now) for row in rows}

        return await self._database.ask(read, care=Care.LOOSE)


def _find(connection: sqlite3.Connection, key: str, now: int) -> Lease | None:
    rows = connection.execute(_LOOK, {"key": key, "now": now}).fetchall()
    if not rows:
        return None
    return _lease(rows[0], now)


def _lease(row: tuple[str, int, int, str], now: int) -> Lease:
    owner, token, until, note = row
    return Lease(owner=owner, token=token, left=(until - now) / 1000, note=note)
