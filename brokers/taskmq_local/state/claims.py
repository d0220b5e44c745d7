"""Keys whose work is done once, in SQLite. One counter issues all tokens."""

import sqlite3
from collections.abc import Mapping
from typing import Final

import msgspec

from taskmq.contracts.stores import Claimed, Done, Held
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase
from taskmq_local.rules.claims import ClaimRecord, claim, complete, release, renew, status

_DELETE_EXPIRED: Final = """
    DELETE FROM claims WHERE key IN (SELECT key FROM claims WHERE expires <= :now ORDER BY expires LIMIT 100)
"""
_FIND: Final = "SELECT record FROM claims WHERE key = :key AND expires > :now"
_NEXT: Final = "SELECT max(value + 1, :now * 1000) FROM counters WHERE name = 'claim'"
_COUNT_ON: Final = "UPDATE counters SET value = ? WHERE name = 'claim'"
_KEEP: Final = "INSERT OR REPLACE INTO claims (key, expires, record) VALUES (?, ?, ?)"

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ClaimRecord)


class LocalClaims:
    """A `taskmq.contracts.stores.ClaimStore`."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(
        self, key: str, *, job_id: str, owner: str, lease: float, ttl: float, over: int | None = None
    ) -> Claimed:
        now = self._clock.now_ms()

        def decide(connection: sqlite3.Connection) -> Claimed:
            connection.execute(_DELETE_EXPIRED, {"now": now})
            token: int = connection.execute(_NEXT, {"now": now}).fetchall()[0][0]
            answer, record = claim(
                _find(connection, key, now),
                job_id=job_id,
                owner=owner,
                lease=round(lease * 1000),
                ttl=round(ttl * 1000),
                over=over,
                token=token,
                now=now,
            )
            if record is not None:
                connection.execute(_COUNT_ON, (token,))
                _keep(connection, key, record)
            return answer

        return await self._database.ask(decide, care=Care.DURABLE)

    async def find(self, key: str) -> Held | Done | None:
        now = self._clock.now_ms()
        return await self._database.ask(
            lambda connection: status(_find(connection, key, now), now=now), care=Care.READ
        )

    async def renew(self, claims: Mapping[str, int], *, lease: float) -> frozenset[str]:
        now, asked = self._clock.now_ms(), dict(claims)

        def decide(connection: sqlite3.Connection) -> frozenset[str]:
            lost = list[str]()
            for key, token in asked.items():
                record = renew(_find(connection, key, now), token=token, lease=round(lease * 1000), now=now)
                if record is None:
                    lost.append(key)
                else:
                    _keep(connection, key, record)
            return frozenset(lost)

        return await self._database.ask(decide, care=Care.LOOSE)

    async def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: float
    ) -> bool:
        now = self._clock.now_ms()

        def decide(connection: sqlite3.Connection) -> bool:
            counts, record = complete(
                _find(connection, key, now),
                token=token,
                job_id=job_id,
                content_type=content_type,
                value=value,
                ttl=round(ttl * 1000),
                now=now,
            )
            if record is not None:
                _keep(connection, key, record)
            return counts

        return await self._database.ask(decide, care=Care.DURABLE)

    async def release(self, key: str, *, token: int) -> bool:
        now = self._clock.now_ms()

        def decide(connection: sqlite3.Connection) -> bool:
            counts, record = release(_find(connection, key, now), token=token, now=now)
            if record is not None:
                _keep(connection, key, record)
            return counts

        return await self._database.ask(decide, care=Care.LOOSE)


def _find(connection: sqlite3.Connection, key: str, now: int) -> ClaimRecord | None:
    rows = connection.execute(_FIND, {"key": key, "now": now}).fetchall()
    return _decoder.decode(rows[0][0]) if rows else None


def _keep(connection: sqlite3.Connection, key: str, record: ClaimRecord) -> None:
    connection.execute(_KEEP, (key, record.expires, _encode(record)))
