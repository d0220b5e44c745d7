"""Storing results as a work item: many records, one transaction."""

import asyncio
import sqlite3
from collections.abc import Callable
from itertools import chain
from typing import Final

import msgspec

from taskmq.contracts.stores import ResultRecord, remembered_for
from taskmq.model.clock import Clock
from taskmq.model.states import JobState
from taskmq_embedded.work import Care, FileFailure
from taskmq_local.database.state_database import Kind

EXPIRED: Final = "expired"
"""State of a row whose record was deleted."""

_MOST: Final = 1_000
_EXPIRED_AT_LEAST: Final = 20

_encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(ResultRecord).decode

# Many rows per statement: each one releases the GIL once and has to reacquire it from the event loop.
_ROWS: Final = 16
_INSERT: Final = "INSERT OR IGNORE INTO results (job_id, state, expires, remembered, record) VALUES "
_INSERT_ONE: Final = _INSERT + "(?,?,?,?,?)"
_INSERT_MANY: Final = _INSERT + ",".join(["(?,?,?,?,?)"] * _ROWS)

_STICKY: Final = ",".join(f"'{state}'" for state in JobState if state.is_sticky)
_DELETE_REPLACED: Final = (
    f"DELETE FROM results WHERE job_id = ? AND (state NOT IN ({_STICKY}) OR expires <= ?)"  # noqa: S608 - constant text
    " AND (record <> ? OR expires <= ?)"
)

_Row = tuple[str, str, int, int, bytes]


class ResultBatch:
    """Records that are stored together, and the deletion of as many expired ones.

    Args:
        patience: seconds after the first record that callers wait.
        trouble: returns the likely reason for a long wait.
    """

    care = Care.DURABLE
    wakeups: tuple[Kind, ...] = ("results",)

    def __init__(self, clock: Clock, *, patience: float, trouble: Callable[[], str]) -> None:
        self.is_open = True
        self._clock = clock
        self._rows: dict[str, _Row] = {}
        self._futures: list[asyncio.Future[None]] = []
        self._patience = patience
        self._trouble = trouble
        # One timer for all: a timer per record would cost more than the record.
        self._timer = asyncio.get_running_loop().call_later(patience, self._expire)

    def add(self, record: ResultRecord, ttl: float) -> asyncio.Future[None]:
        """Store `record`; the future ends once it is durable."""
        now = self._clock.now_ms()
        remembered = now + round(remembered_for(ttl) * 1000)
        row: _Row = (record.job_id, record.state, now + round(ttl * 1000), remembered, _encode(record))
        before = self._rows.get(record.job_id)
        if before is None or not JobState(before[1]).is_sticky:
            self._rows[record.job_id] = row
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        self.is_open = len(self._futures) < _MOST
        return future

    def seal(self) -> None:
        self.is_open = False

    def run(self, connection: sqlite3.Connection) -> None:
        now = self._clock.now_ms()
        rows = list(self._rows.values())
        # Nearly always the first and only record of each job.
        if _insert(connection, rows) < len(rows):
            connection.executemany(
                _DELETE_REPLACED,
                [(job_id, now, record, now) for job_id, *_, record in rows],
            )
            _insert(connection, rows)
        self._sweep(connection, now)

    def end(self, error: Exception | None) -> None:
        self._timer.cancel()
        for future in self._futures:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _expire(self) -> None:
        self.end(FileFailure(f"not stored within {self._patience:g} s: {self._trouble()}", is_certain=False))

    def _sweep(self, connection: sqlite3.Connection, now: int) -> None:
        """Delete at least as many expired records as new ones come, which bounds the table."""
        over = connection.execute(
            "SELECT seq, state, remembered FROM results WHERE expires <= ? ORDER BY expires LIMIT ?",
            (now, _EXPIRED_AT_LEAST + 2 * len(self._rows)),
        ).fetchall()
        if not over:
            return
        forgotten = [(seq,) for seq, state, remembered in over if state == EXPIRED or remembered <= now]
        emptied = [(EXPIRED, seq) for seq, state, remembered in over if state != EXPIRED and remembered > now]
        connection.executemany("DELETE FROM results WHERE seq = ?", forgotten)
        connection.executemany(
            "UPDATE results SET state = ?, record = x'', expires = remembered WHERE seq = ?", emptied
        )


def _insert(connection: sqlite3.Connection, rows: list[_Row]) -> int:
    """Insert records of jobs that have no row; return their number."""
    count = 0
    whole = len(rows) - len(rows) % _ROWS
    for start in range(0, whole, _ROWS):
        count += connection.execute(_INSERT_MANY, list(chain.from_iterable(rows[start : start + _ROWS]))).rowcount
    if whole < len(rows):
        count += connection.executemany(_INSERT_ONE, rows[whole:]).rowcount
    return count
