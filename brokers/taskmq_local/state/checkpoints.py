"""Checkpoints of runs, in SQLite."""

import sqlite3
from typing import Final

from taskmq.contracts.stores import BegunRun
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase

# Always includes the job's own row, however many expired rows come first.
_DELETE_EXPIRED: Final = tuple(
    """
    DELETE FROM TABLE WHERE job_id IN (
        SELECT job_id FROM (SELECT job_id FROM checkpoints WHERE expires <= :now ORDER BY expires LIMIT 100)
        UNION SELECT job_id FROM checkpoints WHERE job_id = :job AND expires <= :now
    )
    """.replace("TABLE", table)
    # Values first: the other table tells which jobs have expired.
    for table in ("saved", "checkpoints")
)
_BEGIN: Final = """
    INSERT INTO checkpoints (job_id, token, attempt, expires) VALUES (:job, :now, :attempt, :expires)
    ON CONFLICT (job_id) DO UPDATE SET token = max(token + 1, :now), attempt = :attempt, expires = :expires
    WHERE attempt <= :attempt OR :attempt = 1
    RETURNING token
"""
_RENEW: Final = "UPDATE checkpoints SET expires = :expires WHERE job_id = :job AND token = :token AND expires > :now"
_SAVE: Final = """
    INSERT INTO saved (job_id, name, value) VALUES (:job, :name, :value)
    ON CONFLICT (job_id, name) DO UPDATE SET value = :value
"""
# The next token is reserved and remembered for a while, so that tokens grow however fast runs follow each other.
_FORGET: Final = """
    UPDATE checkpoints SET token = token + 1, attempt = 0, expires = :expires WHERE job_id = :job AND token = :token
"""
_REMEMBERED_MS: Final = 60_000


class LocalCheckpoints:
    """Values by job and name, and the token of the job's last run."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        now = self._clock.now_ms()
        facts = {"job": job_id, "attempt": attempt, "expires": now + round(ttl * 1000), "now": now}

        def begin(connection: sqlite3.Connection) -> BegunRun | None:
            for statement in _DELETE_EXPIRED:
                connection.execute(statement, facts)
            begun = connection.execute(_BEGIN, facts).fetchall()
            if not begun:
                return None
            saved = connection.execute("SELECT name, value FROM saved WHERE job_id = :job", facts).fetchall()
            return BegunRun(begun[0][0], dict(saved))

        return await self._database.ask(begin, care=Care.DURABLE)

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        now = self._clock.now_ms()
        facts = {
            "job": job_id,
            "name": name,
            "value": value,
            "token": token,
            "expires": now + round(ttl * 1000),
            "now": now,
        }

        def save(connection: sqlite3.Connection) -> bool:
            if connection.execute(_RENEW, facts).rowcount != 1:
                return False
            connection.execute(_SAVE, facts)
            return True

        return await self._database.ask(save, care=Care.DURABLE)

    async def forget(self, job_id: str, *, token: int) -> None:
        facts = {"job": job_id, "token": token, "expires": self._clock.now_ms() + _REMEMBERED_MS}

        def forget(connection: sqlite3.Connection) -> None:
            if connection.execute(_FORGET, facts).rowcount == 1:
                connection.execute("DELETE FROM saved WHERE job_id = :job", facts)

        await self._database.ask(forget, care=Care.LOOSE)
