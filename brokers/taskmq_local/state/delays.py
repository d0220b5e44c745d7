"""Messages that wait in the state, in SQLite."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Final

from taskmq.contracts.stores import TakenMessage, WaitingMessage
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase, unavailable
from taskmq_local.state.delay_batch import WaitingBatch, decode_message, encode_message, first_due, insert_messages

_PATIENCE: Final = 30.0
_TAKE: Final = """
    UPDATE waiting SET taken = :until WHERE version IN
        (SELECT version FROM waiting WHERE due <= :due AND taken <= :now ORDER BY due, version LIMIT :limit)
    RETURNING version, message
"""
_LIST: Final = """
    SELECT message FROM waiting
    WHERE (:task IS NULL OR task = :task) AND (:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
    ORDER BY due, version LIMIT :limit
"""
_IS_AS_FOUND: Final = "SELECT 1 FROM waiting WHERE job_id = ? AND message = ? AND taken <= ?"


class LocalDelays:
    """Delayed messages, one per job. Every put and swap sets a new version, which is the token of a take."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._listeners: set[Callable[[], None]] = set()
        self._batch: WaitingBatch | None = None

    async def put(self, message: WaitingMessage) -> None:
        if self._batch is None or not self._batch.is_open:
            self._batch = WaitingBatch(self._clock)
            self._database.submit(self._batch)
        future = self._batch.add(message)
        try:
            async with asyncio.timeout(_PATIENCE):
                await future
        except TimeoutError:
            raise self._database.too_late(_PATIENCE) from None
        except Exception as error:
            raise unavailable(error) from error

    async def take(self, *, now: int, limit: int, lease: float) -> list[TakenMessage]:
        instant = self._clock.now_ms()
        facts = {"due": now, "now": instant, "until": instant + round(lease * 1000), "limit": limit}

        def take(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
            return connection.execute(_TAKE, facts).fetchall()

        rows = await self._database.ask(take, care=Care.LOOSE)
        taken = [(version, decode_message(message)) for version, message in rows]
        # RETURNING has no order.
        taken.sort(key=lambda one: (one[1].due, one[0]))
        return [TakenMessage(message, str(version)) for version, message in taken]

    async def mark_done(self, taken: Sequence[TakenMessage]) -> None:
        versions = [(int(one.token),) for one in taken]

        def forget(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM waiting WHERE version = ?", versions)

        await self._database.ask(forget, care=Care.LOOSE)

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        versions = [(int(one.token),) for one in taken]

        def give_back(connection: sqlite3.Connection) -> None:
            connection.executemany("UPDATE waiting SET taken = 0 WHERE version = ?", versions)

        await self._database.ask(give_back, care=Care.LOOSE, wakeups=("waiting",))

    async def next_due(self) -> int | None:
        now = self._clock.now_ms()
        return await self._database.ask(lambda connection: first_due(connection, now=now), care=Care.READ)

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        if not self._listeners:
            self._database.listen("waiting", self._notify)
        self._listeners.add(heard)
        return lambda: self._listeners.discard(heard)

    async def count(self) -> int:
        def count(connection: sqlite3.Connection) -> int:
            number: int = connection.execute("SELECT count(*) FROM waiting").fetchone()[0]
            return number

        return await self._database.ask(count, care=Care.READ)

    async def find(self, job_id: str) -> WaitingMessage | None:
        return await self._database.ask(lambda connection: _find(connection, job_id), care=Care.READ)

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        names = None if queues is None else json.dumps([*queues])

        def read(connection: sqlite3.Connection) -> list[tuple[bytes]]:
            return connection.execute(_LIST, {"task": task, "queues": names, "limit": limit}).fetchall()

        return [decode_message(message) for (message,) in await self._database.ask(read, care=Care.READ)]

    async def cancel(self, job_id: str) -> bool:
        facts = (job_id, self._clock.now_ms())

        def cancel(connection: sqlite3.Connection) -> bool:
            return connection.execute("DELETE FROM waiting WHERE job_id = ? AND taken <= ?", facts).rowcount == 1

        return await self._database.ask(cancel, care=Care.DURABLE)

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        facts = (found.job_id, encode_message(found), self._clock.now_ms())

        def swap(connection: sqlite3.Connection) -> bool:
            is_there = connection.execute(_IS_AS_FOUND, facts).fetchone() is not None
            if is_there:
                insert_messages(connection, [changed])
            return is_there

        return await self._database.ask(swap, care=Care.DURABLE, wakeups=("waiting",))

    def _notify(self) -> None:
        for heard in tuple(self._listeners):
            heard()


def _find(connection: sqlite3.Connection, job_id: str) -> WaitingMessage | None:
    row = connection.execute("SELECT message FROM waiting WHERE job_id = ?", (job_id,)).fetchone()
    return None if row is None else decode_message(row[0])
