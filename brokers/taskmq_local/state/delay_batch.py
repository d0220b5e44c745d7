"""Storing waiting messages in SQLite as a work item: many messages, one transaction."""

import asyncio
import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from taskmq.contracts.stores import WaitingMessage
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import Kind

_MOST: Final = 1_000
_FIRST_DUE: Final = "SELECT due FROM waiting WHERE taken <= ? ORDER BY due, version LIMIT 1"

encode_message = msgspec.msgpack.Encoder().encode
decode_message = msgspec.msgpack.Decoder(WaitingMessage).decode


class WaitingBatch:
    """Messages that are stored together; of several for one job the last one counts."""

    care = Care.DURABLE

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_open = True
        self.wakeups: tuple[Kind, ...] = ()
        self._messages: list[tuple[WaitingMessage, asyncio.Future[None]]] = []

    def add(self, message: WaitingMessage) -> asyncio.Future[None]:
        """Store `message`; the future ends once it is durable. If it is cancelled before the write, nothing is
        stored.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._messages.append((message, future))
        self.is_open = len(self._messages) < _MOST
        return future

    def seal(self) -> None:
        self.is_open = False

    def run(self, connection: sqlite3.Connection) -> None:
        messages = {message.job_id: message for message, future in self._messages if not future.done()}
        first = first_due(connection, now=self._clock.now_ms())
        insert_messages(connection, messages.values())
        earliest = min((message.due for message in messages.values()), default=None)
        is_earlier = earliest is not None and (first is None or earliest < first)
        self.wakeups = ("waiting",) if is_earlier else ()

    def end(self, error: Exception | None) -> None:
        for _, future in self._messages:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


def first_due(connection: sqlite3.Connection, *, now: int) -> int | None:
    """Return the due time of the first message that is not taken."""
    row = connection.execute(_FIRST_DUE, (now,)).fetchone()
    return None if row is None else row[0]


def insert_messages(connection: sqlite3.Connection, messages: Iterable[WaitingMessage]) -> None:
    """Store messages of different jobs, replacing earlier messages of these jobs."""
    # Replaced, not updated: every put gets a new version.
    connection.executemany(
        "INSERT OR REPLACE INTO waiting (job_id, task, queue, due, message) VALUES (?, ?, ?, ?, ?)",
        [(message.job_id, message.task, message.queue, message.due, encode_message(message)) for message in messages],
    )
