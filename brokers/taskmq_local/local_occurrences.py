"""Claims of occurrences in the file of `local://`."""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from taskmq.clock import Clock
from taskmq.errors import StateUnavailable
from taskmq_local.database import Database
from taskmq_local.work import Care, DatabaseFailure

__all__ = ["LocalOccurrences"]

T = TypeVar("T")

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

    def __init__(self, database: Database, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._check_open = check_open

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

        return await self._call(claim)

    async def complete(self, occurrence: str, *, ttl: float) -> None:
        facts = {"id": occurrence, "expires": self._clock.now_ms() + round(ttl * 1000)}
        await self._call(lambda connection: connection.execute(_COMPLETE, facts).rowcount)

    async def _call(self, function: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        try:
            return await self._database.call(function, care=Care.DURABLE)
        except DatabaseFailure as error:
            raise StateUnavailable(str(error)) from error
