"""Claims of occurrences in the file of `local://`."""

import sqlite3

from taskmq.clock import Clock
from taskmq_local.asking import Asking
from taskmq_local.work import Care

__all__ = ["LocalOccurrences"]

_CLAIM = """
    INSERT INTO occurrences (id, owner, until, expires) VALUES (:id, :owner, :until, :expires)
    ON CONFLICT (id) DO UPDATE SET owner = :owner, until = :until, expires = :expires
    WHERE expires <= :now OR until <= :now
"""
_COMPLETE = """
    INSERT INTO occurrences (id, owner, until, expires) VALUES (:id, '', NULL, :expires)
    ON CONFLICT (id) DO UPDATE SET until = NULL, expires = :expires
"""
_DELETE_EXPIRED = """
    DELETE FROM occurrences WHERE id IN
    (SELECT id FROM occurrences WHERE expires <= :now ORDER BY expires LIMIT 100)
"""


class LocalOccurrences:
    """Which occurrences were emitted; `until` is NULL once one is completed."""

    def __init__(self, database: Asking, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, occurrence: str, *, owner: str, lease: float, ttl: float) -> bool:
        now = self._clock.now_ms()
        facts = {
            "id": occurrence,
            "owner": owner,
            "until": now + round(lease * 1000),
            "expires": now + round(ttl * 1000),
            "now": now,
        }

        def claim(connection: sqlite3.Connection) -> bool:
            connection.execute(_DELETE_EXPIRED, facts)
            return connection.execute(_CLAIM, facts).rowcount == 1

        return await self._database.ask(claim, care=Care.DURABLE)

    async def complete(self, occurrence: str, *, ttl: float) -> None:
        facts = {"id": occurrence, "expires": self._clock.now_ms() + round(ttl * 1000)}

        def complete(connection: sqlite3.Connection) -> None:
            connection.execute(_COMPLETE, facts)

        await self._database.ask(complete, care=Care.DURABLE)
