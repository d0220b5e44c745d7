"""Leasing messages and settling them, as work items."""

import sqlite3
from collections.abc import Callable
from typing import Final

from taskmq.model.topology import is_shard
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import Kind
from taskmq_local.database.tables import as_ranges, find_queue, give_back, has_turn, release

# id, deliveries before this one, body, content type, job id, task, headers
LeasedRow = tuple[int, int, bytes, str, str, str, str | None]

_FIRST_READY: Final = (
    "SELECT ready.id, ready.deliveries, body, content_type, job_id, task, headers"
    " FROM ready CROSS JOIN messages ON messages.id = ready.id"
    " WHERE ready.queue = ? ORDER BY ready.id LIMIT ?"
)


class LeaseDeliveries:
    """Leases up to a number of messages from the front of a queue, but none of a shard that belongs to another taker.

    Args:
        taker: the owner's number for the consumer or browser.
        limit: called when the work item is sealed, so that earlier settlements count.
        done: called with the lease, or with an error.

    Attributes:
        rows: the leased messages.
        is_missing: whether the queue does not exist.
        limit: the most that could have been leased.
    """

    care = Care.LOOSE
    wakeups: tuple[Kind, ...] = ()

    def __init__(
        self,
        queue: str,
        owner: str,
        *,
        taker: int,
        limit: Callable[[], int],
        done: Callable[["LeaseDeliveries", Exception | None], None],
    ) -> None:
        self.limit = 0
        self.rows: list[LeasedRow] = []
        self.is_missing = False
        self.queue = queue
        self._owner = owner
        self._taker = taker
        self._ask_limit = limit
        self._done = done

    def seal(self) -> None:
        self.limit = self._ask_limit()

    def run(self, connection: sqlite3.Connection) -> None:
        queue = find_queue(connection, self.queue)
        self.is_missing = queue is None
        self.rows = []
        if queue is None or self.limit <= 0:
            return
        if is_shard(self.queue) and not has_turn(connection, queue, self._owner, self._taker):
            return
        self.rows = connection.execute(_FIRST_READY, (queue, self.limit)).fetchall()
        if self.rows:
            span = (queue, self.rows[0][0], self.rows[-1][0])
            connection.execute(
                "INSERT INTO leases SELECT id, queue, ?, deliveries FROM ready"
                " WHERE queue = ? AND id BETWEEN ? AND ?",
                (self._owner, *span),
            )
            connection.execute("DELETE FROM ready WHERE queue = ? AND id BETWEEN ? AND ?", span)

    def end(self, error: Exception | None) -> None:
        if error is not None:
            self.rows = []
        self._done(self, error)


class Settlement:
    """Messages to acknowledge, to requeue, and to return undelivered.

    Attributes:
        void: number of those that the owner no longer held.
    """

    def __init__(self, owner: str, done: Callable[["Settlement", Exception | None], None]) -> None:
        self.is_open = True
        self.acks: list[int] = []
        self.requeues: list[int] = []
        self.untouched: list[int] = []
        self.void = 0
        self._is_released = False
        self._owner = owner
        self._done = done

    @property
    def care(self) -> Care:
        return Care.DURABLE if self.acks else Care.LOOSE

    @property
    def wakeups(self) -> tuple[Kind, ...]:
        return ("messages",) if self.requeues or self.untouched or self._is_released else ()

    def seal(self) -> None:
        self.is_open = False

    def run(self, connection: sqlite3.Connection) -> None:
        settled = 0
        for first, last in as_ranges(self.acks):
            lease = (first, last, self._owner)
            connection.execute(
                "DELETE FROM messages WHERE id IN (SELECT id FROM leases WHERE id BETWEEN ? AND ? AND owner = ?)",
                lease,
            )
            settled += connection.execute("DELETE FROM leases WHERE id BETWEEN ? AND ? AND owner = ?", lease).rowcount
        for first, last in as_ranges(self.requeues):
            settled += give_back(connection, self._owner, first, last)
        for first, last in as_ranges(self.untouched):
            settled += give_back(connection, self._owner, first, last, deliveries=0)
        self.void = len(self.acks) + len(self.requeues) + len(self.untouched) - settled
        self._is_released = release(connection)

    def end(self, error: Exception | None) -> None:
        self._done(self, error)
