"""Runs begun but not ended, in the file of `local://`."""

import sqlite3
from typing import Final

from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase

_DELETE_EXPIRED: Final = """
    DELETE FROM starts WHERE job_id IN (SELECT job_id FROM starts WHERE expires <= :now ORDER BY expires LIMIT 100)
"""
_BEGIN: Final = """
    INSERT INTO starts (job_id, begun, expires) VALUES (:job, 1, :expires)
    ON CONFLICT (job_id) DO UPDATE SET begun = iif(expires <= :now, 1, begun + 1), expires = :expires
    RETURNING begun
"""


class LocalStarts:
    """Counts by job; each begin extends the expiry."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, job_id: str, *, ttl: float) -> int:
        now = self._clock.now_ms()
        facts = {"job": job_id, "expires": now + round(ttl * 1000), "now": now}

        def begin(connection: sqlite3.Connection) -> int:
            connection.execute(_DELETE_EXPIRED, facts)
            begun: int = connection.execute(_BEGIN, facts).fetchall()[0][0]
            return begun

        # Durable: the cause of a worker's death may take down the machine.
        return await self._database.ask(begin, care=Care.DURABLE)

    async def end(self, job_id: str) -> None:
        def end(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM starts WHERE job_id = ?", (job_id,))

        await self._database.ask(end, care=Care.LOOSE)
