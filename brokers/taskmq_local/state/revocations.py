"""Cancelled jobs, in the file of `local://`."""

import sqlite3
from typing import Final

from taskmq.contracts.stores import Revocation
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase

# Always includes the job's own row, however many expired rows come first: a new revocation gets a new place.
_DELETE_EXPIRED: Final = """
    DELETE FROM revocations WHERE job_id IN (
        SELECT job_id FROM (SELECT job_id FROM revocations WHERE until <= :now ORDER BY until LIMIT 100)
        UNION SELECT job_id FROM revocations WHERE job_id = :job AND until <= :now
    )
"""
_PROLONG: Final = "UPDATE revocations SET until = max(until, :until) WHERE job_id = :job"
# Places are never reused, so a reader that has read up to one cannot miss later ones.
_ADD: Final = """
    INSERT INTO revocations (place, job_id, reason, until)
    VALUES ((SELECT value FROM counters WHERE name = 'revocation'), :job, :reason, :until)
"""
_NEXT: Final = "UPDATE counters SET value = value + 1 WHERE name = 'revocation'"
_SINCE: Final = """
    SELECT job_id, reason, place, until FROM revocations
    WHERE place > :place AND until > :now ORDER BY place LIMIT :limit
"""


class LocalRevocations:
    """Revocations by job, in the order of their arrival."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        now = self._clock.now_ms()
        facts = {"job": job_id, "reason": reason, "until": now + round(ttl * 1000), "now": now}

        def revoke(connection: sqlite3.Connection) -> None:
            connection.execute(_DELETE_EXPIRED, facts)
            if connection.execute(_PROLONG, facts).rowcount == 0:
                connection.execute(_NEXT)
                connection.execute(_ADD, facts)

        await self._database.ask(revoke, care=Care.DURABLE)

    async def since(self, cursor: int, *, limit: int) -> list[Revocation]:
        facts = {"place": cursor, "now": self._clock.now_ms(), "limit": limit}

        def since(connection: sqlite3.Connection) -> list[Revocation]:
            rows = connection.execute(_SINCE, facts).fetchall()
            return [Revocation(job_id=row[0], reason=row[1], cursor=row[2], until=row[3]) for row in rows]

        return await self._database.ask(since, care=Care.LOOSE)
