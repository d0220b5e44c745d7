"""Limits, in SQLite."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.stores import Demand, LimitEntry, LimitUsage, PlaceDemand
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase
from taskmq_local.rules.limits import FORGOTTEN, LAPSE, acquire, mean

_FIND: Final = "SELECT arrival, peak, spill, average, last FROM limits WHERE key = ?"
_KEEP: Final = """
    INSERT OR REPLACE INTO limits (key, arrival, peak, spill, average, last, expires)
    VALUES (:key, :arrival, :peak, :spill, :average, :last, :expires)
"""
_PROMISE: Final = """
    INSERT INTO limit_lines (key, job_id, promised) VALUES (?, ?, ?)
    ON CONFLICT (key, job_id) DO UPDATE SET promised = excluded.promised
"""
_RANK: Final = """
    SELECT count(*) FROM limit_lines WHERE key = ? AND promised >= ? AND place <
        (SELECT place FROM limit_lines WHERE key = ? AND job_id = ?)
"""
_DROP_LAPSED: Final = (
    "DELETE FROM limit_lines WHERE rowid IN (SELECT rowid FROM limit_lines WHERE promised <= ? LIMIT 100)",
    "DELETE FROM limit_holds WHERE rowid IN (SELECT rowid FROM limit_holds WHERE until <= ? LIMIT 100)",
    "DELETE FROM limits WHERE key IN (SELECT key FROM limits WHERE expires <= ? LIMIT 100)",
)


class LocalLimits:
    """A `taskmq.contracts.stores.LimitStore`."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def acquire(
        self, job_id: str, demands: Sequence[Demand], *, hold: str, seconds: float, patience: float
    ) -> LimitEntry:
        def enter_all(connection: sqlite3.Connection) -> LimitEntry:
            # Read inside the transaction, which may have waited for others: their instants must not be later.
            now = self._clock.now_ms() / 1000
            _drop_lapsed(connection, now)
            limits = [_Limit(connection, demand.key, now) for demand in demands]
            records = list(zip(demands, limits, strict=True))
            entry = acquire(job_id, records, hold=hold, seconds=seconds, patience=patience, now=now)
            for limit in limits:
                limit.keep(now)
            return entry

        return await self._database.ask(enter_all, care=Care.LOOSE)

    async def renew(self, holds: Sequence[tuple[str, PlaceDemand]], *, seconds: float) -> list[bool]:
        def renew(connection: sqlite3.Connection) -> list[bool]:
            now = self._clock.now_ms() / 1000
            answers: list[bool] = []
            for hold, demand in holds:
                limit = _Limit(connection, demand.key, now)
                held = limit.holds()
                if is_held := hold in held or len(held) < demand.places:
                    limit.hold(hold, now + seconds)
                answers.append(is_held)
            return answers

        return await self._database.ask(renew, care=Care.LOOSE)

    async def release(self, hold: str, keys: Sequence[str], *, held: float | None) -> None:
        def leave(connection: sqlite3.Connection) -> None:
            now = self._clock.now_ms() / 1000
            for key in keys:
                gone = connection.execute("DELETE FROM limit_holds WHERE key = ? AND hold = ?", (key, hold))
                if gone.rowcount == 1 and held is not None:
                    limit = _Limit(connection, key, now)
                    limit.average = mean(limit.average, held)
                    limit.keep(now)

        await self._database.ask(leave, care=Care.LOOSE)

    async def withdraw(self, job_id: str, keys: Sequence[str]) -> None:
        def withdraw(connection: sqlite3.Connection) -> None:
            for key in keys:
                connection.execute("DELETE FROM limit_lines WHERE key = ? AND job_id = ?", (key, job_id))

        await self._database.ask(withdraw, care=Care.LOOSE)

    async def usage(self, key: str) -> LimitUsage:
        def read(connection: sqlite3.Connection) -> LimitUsage:
            now = self._clock.now_ms() / 1000
            limit = _Limit(connection, key, now)
            return LimitUsage(held=len(limit.holds()), waiting=limit.count(now - LAPSE, float("inf")))

        return await self._database.ask(read, care=Care.LOOSE)


class _Limit:
    """A `taskmq_local.rules.limits.Record`, inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, key: str, now: float) -> None:
        self._connection = connection
        self._key = key
        self._now = now
        rows = connection.execute(_FIND, (key,)).fetchall()
        facts: tuple[float, float, float, float, float] = rows[0] if rows else (0.0, 0.0, 0.0, 0.0, 0.0)
        self.arrival, self.peak, self.spill, self.average, self.last = facts

    def keep(self, now: float) -> None:
        facts = {
            "key": self._key,
            "arrival": self.arrival,
            "peak": self.peak,
            "spill": self.spill,
            "average": self.average,
            "last": self.last,
            "expires": max(now, self.arrival, self.spill) + FORGOTTEN,
        }
        self._connection.execute(_KEEP, facts)

    def promise_of(self, job_id: str) -> float | None:
        return self._one(
            "SELECT promised FROM limit_lines WHERE key = ? AND job_id = ? AND promised > ?",
            self._key, job_id, self._now - LAPSE,
        )  # fmt: skip

    def waiting(self) -> int:
        return self.count(self._now - LAPSE, float("inf"))

    def count(self, since: float, before: float) -> int:
        sql = "SELECT count(*) FROM limit_lines WHERE key = ? AND promised >= ? AND promised < ?"
        return int(self._one(sql, self._key, since, before) or 0)

    def rank(self, job_id: str, since: float) -> int:
        return int(self._one(_RANK, self._key, since, self._key, job_id) or 0)

    def promise(self, job_id: str, instant: float) -> None:
        self._connection.execute(_PROMISE, (self._key, job_id, instant))

    def forget(self, job_id: str) -> None:
        self._connection.execute("DELETE FROM limit_lines WHERE key = ? AND job_id = ?", (self._key, job_id))

    def holds(self) -> list[str]:
        rows = self._connection.execute(
            "SELECT hold FROM limit_holds WHERE key = ? AND until > ? ORDER BY until", (self._key, self._now)
        )
        return [row[0] for row in rows.fetchall()]

    def hold(self, hold: str, until: float) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO limit_holds (key, hold, until) VALUES (?, ?, ?)", (self._key, hold, until)
        )

    def _one(self, sql: str, *values: object) -> float | None:
        rows = self._connection.execute(sql, values).fetchall()
        return None if not rows else rows[0][0]


def _drop_lapsed(connection: sqlite3.Connection, now: float) -> None:
    for sql, instant in zip(_DROP_LAPSED, (now - LAPSE, now, now), strict=True):
        connection.execute(sql, (instant,))
