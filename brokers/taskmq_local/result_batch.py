"""Storing results as a work: many records, one transaction."""

import asyncio
import sqlite3
from typing import Final

import msgspec

from taskmq.clock import Clock
from taskmq.states import JobState
from taskmq.stores import ResultRecord
from taskmq_local.wakeups import Kind
from taskmq_local.work import Care

__all__ = ["ResultBatch", "decode_record"]

_MOST: Final = 1_000
_EXPIRED_AT_LEAST: Final = 20

_encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(ResultRecord).decode

_Row = tuple[str, str, int, bytes]


class ResultBatch:
    """Records that are put together, and as many expired ones that go."""

    care = Care.DURABLE
    bells: tuple[Kind, ...] = ("results",)

    def __init__(self, clock: Clock) -> None:
        self.is_open = True
        self.is_heavy = False
        self._clock = clock
        self._rows: dict[str, _Row] = {}
        self._futures: list[asyncio.Future[None]] = []

    def add(self, record: ResultRecord, expires: int) -> asyncio.Future[None]:
        """Put `record`; the future ends once it is durable."""
        row: _Row = (record.job_id, record.state, expires, _encode(record))
        before = self._rows.get(record.job_id)
        if before is None or before[1] != JobState.SUCCEEDED:
            self._rows[record.job_id] = row
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        self.is_open = len(self._futures) < _MOST
        return future

    def seal(self) -> None:
        self.is_heavy = not self.is_open
        self.is_open = False

    def run(self, connection: sqlite3.Connection) -> None:
        now = self._clock.now_ms()
        connection.executemany(
            "DELETE FROM results WHERE job_id = ? AND (state <> 'succeeded' OR expires <= ?)"
            " AND (record <> ? OR expires <= ?)",
            [(job_id, now, record, now) for job_id, _, _, record in self._rows.values()],
        )
        connection.executemany(
            "INSERT OR IGNORE INTO results (job_id, state, expires, record) VALUES (?, ?, ?, ?)",
            list(self._rows.values()),
        )
        # At least as many go as come, so the table does not outgrow what is kept.
        connection.execute(
            "DELETE FROM results WHERE seq IN (SELECT seq FROM results WHERE expires <= ? ORDER BY expires LIMIT ?)",
            (now, _EXPIRED_AT_LEAST + 2 * len(self._rows)),
        )

    def end(self, error: Exception | None) -> None:
        for future in self._futures:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
