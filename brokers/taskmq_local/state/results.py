"""Results in the file of `local://`, and waits for them."""

import asyncio
import enum
import sqlite3
from collections.abc import Callable
from typing import Final

from taskmq.contracts.stores import ResultRecord
from taskmq.errors import ResultExpired, StateUnavailable
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care, FileFailure
from taskmq_local.database.database import Database
from taskmq_local.state.result_batch import EXPIRED, ResultBatch, decode_record

_PATIENCE: Final = 30.0
# The first read takes place however short the timeout is.
_FIRST_LOOK: Final = 1.0
_TICK: Final = 1.0


class _Gone(enum.Enum):
    GONE = enum.auto()


class LocalResults:
    """Results by job id.

    A put gives its row a `seq` higher than all others and sends a wakeup. Waiting callers read the rows above the
    last `seq` seen, so thousands of them cost one query per wakeup, over new rows only.

    Args:
        listen: makes sure that each wakeup for results calls `poll`.
        check_open: raises if the state was closed.
    """

    def __init__(
        self, database: Database, clock: Clock, *, listen: Callable[[], None], check_open: Callable[[], None]
    ) -> None:
        self._database = database
        self._clock = clock
        self._listen = listen
        self._check_open = check_open
        self._batch: ResultBatch | None = None
        self._writer = database
        self._waiting: dict[str, list[asyncio.Future[ResultRecord]]] = {}
        self._seen: int | None = None
        self._is_looking = False
        self._look_again = False
        self._ticker: asyncio.TimerHandle | None = None

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        self._check_open()
        if (batch := self._batch) is None or not batch.is_open:
            # Shares transactions with the acknowledgements of the worker that stores it, if there is one.
            database = self._writer = self._database.partner()
            batch = self._batch = ResultBatch(self._clock, patience=_PATIENCE, trouble=lambda: database.trouble)
            database.submit(batch)
        self._writer.note_arrival()
        try:
            await batch.add(record, ttl)
        except Exception as error:
            raise StateUnavailable(str(error)) from error

    async def get(self, job_id: str) -> ResultRecord | None:
        record = await self._get(job_id, timeout=_PATIENCE)
        return record if isinstance(record, ResultRecord) else None

    async def has_expired(self, job_id: str) -> bool:
        return await self._get(job_id, timeout=_PATIENCE) is _Gone.GONE

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        self._check_open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ResultRecord] = loop.create_future()
        deadline = None if timeout is None else loop.time() + timeout
        # Join first, then read: a record put in between is seen by both.
        self._join(job_id, future)
        try:
            patience = _PATIENCE if timeout is None else max(timeout, _FIRST_LOOK)
            record = await self._get(job_id, timeout=patience)
            if record is _Gone.GONE:
                raise ResultExpired(job_id)
            if record is not None:
                return record
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            return None
        finally:
            self._leave(job_id, future)

    def poll(self) -> None:
        """End the waits for records stored since the last read."""
        if not self._waiting:
            return
        if self._is_looking:
            self._look_again = True
            return
        self._is_looking = True
        self._database.post(self._read_new, care=Care.READ).add_done_callback(self._on_read)

    def close(self) -> None:
        """End all waits for results."""
        if self._ticker is not None:
            self._ticker.cancel()
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(StateUnavailable("the state was closed"))

    async def _get(self, job_id: str, *, timeout: float) -> "ResultRecord | _Gone | None":
        self._check_open()
        sql = "SELECT state, expires, remembered, record FROM results WHERE job_id = ?"

        def read(connection: sqlite3.Connection) -> tuple[str, int, int, bytes] | None:
            row: tuple[str, int, int, bytes] | None = connection.execute(sql, (job_id,)).fetchone()
            return row

        try:
            row = await self._database.call(read, care=Care.READ, timeout=timeout)
        except FileFailure as error:
            raise StateUnavailable(str(error)) from error
        if row is None:
            return None
        state, expires, remembered, record = row
        now = self._clock.now_ms()
        if state != EXPIRED and expires > now:
            return decode_record(record)
        return _Gone.GONE if remembered > now else None

    def _join(self, job_id: str, future: asyncio.Future[ResultRecord]) -> None:
        self._listen()
        is_first = not self._waiting
        self._waiting.setdefault(job_id, []).append(future)
        if is_first:
            # Earlier records are found by `get`.
            self._seen = None
            self.poll()
            self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)

    def _leave(self, job_id: str, future: asyncio.Future[ResultRecord]) -> None:
        if future.done() and not future.cancelled():
            # Retrieved: the first read may have ended the wait before a close.
            future.exception()
        futures = self._waiting.get(job_id, [])
        if future in futures:
            futures.remove(future)
        if not futures:
            self._waiting.pop(job_id, None)
        if not self._waiting and self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def _on_tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._on_tick)
        self.poll()

    def _read_new(self, connection: sqlite3.Connection) -> tuple[int, list[tuple[str, bytes]]]:
        """Return the last seq and the awaited records; runs in the thread."""
        if self._seen is None:
            sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'results'), 0)"
            return connection.execute(sql).fetchone()[0], []
        rows = connection.execute(
            "SELECT seq, job_id, state FROM results WHERE seq > ? ORDER BY seq", (self._seen,)
        ).fetchall()
        wanted = [(seq, job_id) for seq, job_id, state in rows if job_id in self._waiting and state != EXPIRED]
        found = [
            (job_id, connection.execute("SELECT record FROM results WHERE seq = ?", (seq,)).fetchone()[0])
            for seq, job_id in wanted
        ]
        return rows[-1][0] if rows else self._seen, found

    def _on_read(self, future: asyncio.Future[tuple[int, list[tuple[str, bytes]]]]) -> None:
        self._is_looking = False
        # After a failed read the next tick retries.
        if not future.cancelled() and future.exception() is None:
            self._seen, found = future.result()
            for job_id, record in found:
                self._tell(job_id, record)
            if self._look_again:
                self._look_again = False
                self.poll()

    def _tell(self, job_id: str, record: bytes) -> None:
        for waiting in self._waiting.get(job_id, ()):
            if not waiting.done():
                waiting.set_result(decode_record(record))
