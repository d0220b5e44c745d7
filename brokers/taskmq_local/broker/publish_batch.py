"""Publishing as a work item: many messages in one transaction, each with its deadline."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from taskmq.contracts.broker import Outgoing
from taskmq.errors import PublishRejected, PublishUnknown, Unroutable
from taskmq.model.clock import Clock
from taskmq_embedded.work import Care, FileFailure
from taskmq_local.database.state_database import Kind
from taskmq_local.database.tables import capacity_of, create_queues, find_queue, reserve_ids
from taskmq_local.rules.capacity import Capacity

_MOST_MESSAGES: Final = 2_000
_MOST_BYTES: Final = 8 * 1024 * 1024

# Many rows per statement: each one releases the GIL once and has to reacquire it from the event loop.
_ROWS: Final = 100
_INSERT = "INSERT INTO messages (id, body, content_type, job_id, task, root, enqueued, headers) VALUES "
_INSERT_ONE = _INSERT + "(?,?,?,?,?,?,?,?)"
_INSERT_MANY = _INSERT + ",".join(["(?,?,?,?,?,?,?,?)"] * _ROWS)
_INSERT_READY = "INSERT INTO ready SELECT ?, id, 0 FROM messages WHERE id BETWEEN ? AND ?"
_INSERT_DELAYED = "INSERT INTO delayed VALUES (?,?,?,?,?,?,?,?,?,?)"

# Errors of binding a value to a statement: text that cannot be encoded, numbers beyond 64 bits.
_BAD_VALUES = (sqlite3.InterfaceError, sqlite3.ProgrammingError, UnicodeError, OverflowError, TypeError)

_encode_headers = msgspec.json.Encoder().encode


class PublishOutcomes:
    """Outcomes of messages published together.

    Attributes:
        future: ends once all outcomes are known.
    """

    __slots__ = ("_left", "_outcomes", "future")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[list[Exception | None]] = asyncio.get_running_loop().create_future()
        self._outcomes: list[Exception | None] = [None] * count
        self._left = count
        if not count:
            self.future.set_result([])

    def set(self, index: int, error: Exception | None) -> None:
        """Set the outcome of the message at `index`, once."""
        self._outcomes[index] = error
        self._left -= 1
        # A caller that stopped waiting does not withdraw its messages.
        if not self._left and not self.future.done():
            self.future.set_result(self._outcomes)


@dataclass(slots=True, eq=False)
class _BatchEntry:
    message: Outgoing
    deadline: float
    # The caller's future: for this message, or for many of which this is one.
    future: asyncio.Future[Any]
    outcomes: PublishOutcomes | None = None
    index: int = 0
    error: Exception | None = None
    is_notified: bool = False

    @property
    def has_ended(self) -> bool:
        return self.is_notified or self.future.done()

    def end(self, error: Exception | None) -> None:
        if self.has_ended:
            return
        self.is_notified = True
        if self.outcomes is not None:
            self.outcomes.set(self.index, error)
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(None)


class PublishBatch:
    """Messages that are published together.

    Args:
        declared: queues that may be redeclared if they are missing.
        trouble: returns the likely reason for a long wait.
        unavailable: creates the error for messages that were not written.
    """

    care = Care.DURABLE

    def __init__(
        self,
        clock: Clock,
        *,
        declared: Mapping[str, Capacity],
        trouble: Callable[[], str],
        unavailable: Callable[[str], Exception],
    ) -> None:
        self.is_open = True
        self.wakeups: tuple[Kind, ...] = ()
        self._clock = clock
        self._declared = declared
        self._trouble = trouble
        self._unavailable = unavailable
        self._entries: list[_BatchEntry] = []
        self._bytes = 0
        # Between the loop, which withdraws late messages, and the thread, which writes them.
        self._lock = threading.Lock()
        self._has_begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._ring_at = float("inf")

    def add(self, message: Outgoing, future: asyncio.Future[None], deadline: float) -> None:
        """Publish `message` with this batch, or fail it at `deadline` (loop time)."""
        self._add(_BatchEntry(message, deadline, future), deadline)

    def add_one_of(self, outcomes: PublishOutcomes, index: int, message: Outgoing, deadline: float) -> None:
        """Publish one of many messages, or fail it at `deadline` (loop time)."""
        self._add(_BatchEntry(message, deadline, outcomes.future, outcomes, index), deadline)

    def _add(self, entry: _BatchEntry, deadline: float) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.message.body)
        self.is_open = len(self._entries) < _MOST_MESSAGES and self._bytes < _MOST_BYTES
        if deadline < self._ring_at:
            self._set_timer(deadline)

    def seal(self) -> None:
        self.is_open = False

    def run(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            self._has_begun = True
            entries = self._entries
        connection.execute("SAVEPOINT publish")
        try:
            self._insert(connection, entries)
        except _BAD_VALUES:
            # Rare: one by one, to find the message at fault.
            connection.execute("ROLLBACK TO publish")
            for entry in entries:
                self._insert_alone(connection, entry)
        connection.execute("RELEASE publish")

    def end(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Emptied: the batch may be kept for later messages.
        entries, self._entries = self._entries, []
        for entry in entries:
            entry.end(entry.error if error is None else self._translate(error))

    def _insert(self, connection: sqlite3.Connection, entries: list[_BatchEntry]) -> None:
        now = self._clock.now_ms()
        by_queue: dict[str, tuple[list[Outgoing], list[Outgoing]]] = {}
        ids: dict[str, int | None] = {}
        rooms: dict[str, _Room | None] = {}
        for entry in entries:
            message = entry.message
            name = message.queue
            if name not in ids:
                ids[name] = self._find(connection, name)
                rooms[name] = _room(connection, name, ids[name])
                by_queue[name] = ([], [])
            if ids[name] is None:
                entry.error = Unroutable(name)
                continue
            is_delayed = message.due is not None and message.due > now
            room = rooms[name]
            entry.error = None if room is None or is_delayed else room.refusal(message)
            if entry.error is not None:
                continue
            by_queue[name][is_delayed].append(message)
        kinds: set[Kind] = set()
        for name, (ready, delayed) in by_queue.items():
            if ready:
                kinds.add("messages")
                self._insert_ready(connection, ids[name], ready)
            if delayed:
                kinds.add("delays")
                first = reserve_ids(connection, len(delayed))
                rows = [(*_row(first + index, message), name, message.due) for index, message in enumerate(delayed)]
                connection.executemany(_INSERT_DELAYED, rows)
        self.wakeups = (*self.wakeups, *(kinds - {*self.wakeups}))

    def _insert_ready(self, connection: sqlite3.Connection, queue: int | None, messages: list[Outgoing]) -> None:
        first = reserve_ids(connection, len(messages))
        rows = [_row(first + index, message) for index, message in enumerate(messages)]
        whole = len(rows) - len(rows) % _ROWS
        for start in range(0, whole, _ROWS):
            connection.execute(_INSERT_MANY, list(chain.from_iterable(rows[start : start + _ROWS])))
        connection.executemany(_INSERT_ONE, rows[whole:])
        connection.execute(_INSERT_READY, (queue, first, first + len(rows) - 1))

    def _insert_alone(self, connection: sqlite3.Connection, entry: _BatchEntry) -> None:
        connection.execute("SAVEPOINT entry")
        try:
            self._insert(connection, [entry])
        except _BAD_VALUES as error:
            connection.execute("ROLLBACK TO entry")
            entry.error = PublishRejected(f"a value of the message cannot be stored: {error}")
        connection.execute("RELEASE entry")

    def _find(self, connection: sqlite3.Connection, name: str) -> int | None:
        queue = find_queue(connection, name)
        if queue is None and name in self._declared:
            create_queues(connection, {name: self._declared[name]})
            queue = find_queue(connection, name)
        return queue

    def _translate(self, error: Exception) -> Exception:
        if isinstance(error, FileFailure) and not error.is_certain:
            return PublishUnknown(str(error))
        return self._unavailable(str(error))

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ring_at = at
        self._timer = asyncio.get_running_loop().call_at(at, self._expire)

    def _expire(self) -> None:
        """Fail the messages past their deadline, and withdraw them if that is still possible."""
        now = asyncio.get_running_loop().time()
        with self._lock:
            has_begun = self._has_begun
            late = [entry for entry in self._entries if entry.deadline <= now and not entry.has_ended]
            if not has_begun:
                # Messages with cancelled futures stay in the batch.
                gone = set(map(id, late))
                self._entries = [entry for entry in self._entries if id(entry) not in gone]
        for entry in late:
            if has_begun:
                entry.end(PublishUnknown(f"not confirmed in time: {self._trouble()}"))
            else:
                entry.end(self._unavailable(f"not written in time: {self._trouble()}"))
        waiting = [entry.deadline for entry in self._entries if not entry.has_ended]
        if waiting:
            self._set_timer(min(waiting))


class _Room:
    """Remaining capacity of a queue during one transaction."""

    def __init__(self, queue: str, capacity: Capacity, *, ready: int, held: int) -> None:
        self._queue = queue
        self._capacity = capacity
        self._ready = ready
        self._held = held

    def refusal(self, message: Outgoing) -> PublishRejected | None:
        """Count the message; if the queue is full, return the error instead."""
        size = len(message.body)
        refusal = self._capacity.refusal(self._queue, ready=self._ready, held=self._held, size=size)
        if refusal is None:
            self._ready += 1
            self._held += size
        return refusal


def _room(connection: sqlite3.Connection, name: str, queue: int | None) -> _Room | None:
    if queue is None or (capacity := capacity_of(connection, queue)) is None:
        return None
    # The count stops near the capacity.
    ready, held = connection.execute(
        "SELECT count(*), coalesce(sum(length(body)), 0) FROM ready JOIN messages USING (id) WHERE queue = ?",
        (queue,),
    ).fetchone()
    return _Room(name, capacity, ready=ready, held=held)


def _row(id_: int, message: Outgoing) -> tuple[object, ...]:
    return (
        id_,
        message.body,
        message.content_type,
        message.job_id,
        message.task,
        message.root,
        message.enqueued,
        _encode_headers(message.headers).decode() if message.headers else None,
    )
