"""Progress of jobs, in SQLite."""

import sqlite3
from typing import Final

import msgspec

from taskmq.contracts.stores import ProgressRecord
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase

_DELETE_EXPIRED: Final = """
    DELETE FROM progress WHERE job_id IN
    (SELECT job_id FROM progress WHERE expires <= :now ORDER BY expires LIMIT 100)
"""
_REPORT: Final = """
    INSERT INTO progress (job_id, attempt, started, expires, record)
    VALUES (:job, :attempt, :started, :expires, :record)
    ON CONFLICT (job_id) DO UPDATE
    SET attempt = :attempt, started = :started, expires = :expires, record = :record
    WHERE expires <= :now OR started <= :started OR attempt < :attempt
"""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ProgressRecord)


class LocalProgress:
    """The last record of each job."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        now = self._clock.now_ms()
        facts = {
            "job": record.job_id,
            "attempt": record.attempt,
            "started": record.started,
            "record": _encode(record),
            "expires": now + round(ttl * 1000),
            "now": now,
        }

        def report(connection: sqlite3.Connection) -> None:
            connection.execute(_DELETE_EXPIRED, facts)
            connection.execute(_REPORT, facts)

        await self._database.ask(report, care=Care.LOOSE)

    async def find(self, job_id: str) -> ProgressRecord | None:
        now = self._clock.now_ms()

        def find(connection: sqlite3.Connection) -> bytes | None:
            rows = connection.execute(
                "SELECT record FROM progress WHERE job_id = ? AND expires > ?", (job_id, now)
            ).fetchall()
            return rows[0][0] if rows else None

        found = await self._database.ask(find, care=Care.READ)
        return None if found is None else _decoder.decode(found)
