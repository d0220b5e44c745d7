"""SQL helpers that several work items share."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from taskmq.model.topology import UNROUTABLE
from taskmq_local.database.owners import is_alive, remove_owner
from taskmq_local.rules.capacity import Capacity

# Takes about 15 ms.
_PROMOTED_AT_ONCE: Final = 1_500
# :first is the id of the first message that moves. If its queue was deleted, a header names it.
_MOVE_MESSAGES = """
    INSERT INTO messages
    SELECT :first - 1 + row_number() OVER (ORDER BY due, delayed.id),
        body, content_type, job_id, task, root, enqueued,
        iif(queues.id IS NULL, json_set(coalesce(headers, '{}'), '$."x-taskmq-queue"', queue), headers)
    FROM (SELECT * FROM delayed WHERE due <= :now ORDER BY due, id LIMIT :count) delayed
    LEFT JOIN queues ON queues.name = delayed.queue
"""
_MOVE_READY = """
    INSERT INTO ready
    SELECT coalesce(queues.id, (SELECT id FROM queues WHERE name = 'taskmq.unroutable')),
        :first - 1 + row_number() OVER (ORDER BY due, delayed.id), 0
    FROM (SELECT * FROM delayed WHERE due <= :now ORDER BY due, id LIMIT :count) delayed
    LEFT JOIN queues ON queues.name = delayed.queue
"""
_DELETE_DUE = """
    DELETE FROM delayed WHERE id IN
    (SELECT id FROM delayed WHERE due <= :now ORDER BY due, id LIMIT :count)
"""
_COUNT_DUE = "SELECT count(*) FROM (SELECT 1 FROM delayed WHERE due <= ? LIMIT ?)"


def find_queue(connection: sqlite3.Connection, name: str) -> int | None:
    """Return the id of the physical queue; None if it does not exist."""
    row = connection.execute("SELECT id FROM queues WHERE name = ?", (name,)).fetchone()
    return row[0] if row is not None else None


def create_queues(connection: sqlite3.Connection, queues: Mapping[str, Capacity]) -> None:
    """Create the missing queues; existing ones get the newly declared capacity."""
    names = [(name,) for name in queues]
    connection.executemany("INSERT OR IGNORE INTO queues (name) VALUES (?)", names)
    connection.executemany("DELETE FROM capacities WHERE queue = (SELECT id FROM queues WHERE name = ?)", names)
    connection.executemany(
        "INSERT INTO capacities SELECT id, ?, ? FROM queues WHERE name = ?",
        [(capacity.length, capacity.bytes, name) for name, capacity in queues.items() if capacity.is_limited],
    )


def capacity_of(connection: sqlite3.Connection, queue: int) -> Capacity | None:
    """Return the capacity of the queue; None if it is unlimited."""
    row = connection.execute("SELECT length, bytes FROM capacities WHERE queue = ?", (queue,)).fetchone()
    return None if row is None else Capacity(*row)


def reserve_ids(connection: sqlite3.Connection, count: int) -> int:
    """Reserve `count` new ids; return the first."""
    sql = "UPDATE counters SET value = value + ? WHERE name = 'message' RETURNING value"
    last: int = connection.execute(sql, (count,)).fetchall()[0][0]
    return last - count + 1


def as_ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Group `ids` into ranges, so that settling many takes a few statements instead of one per message."""
    ranges: list[tuple[int, int]] = []
    for id_ in sorted(ids):
        if ranges and ranges[-1][1] == id_ - 1:
            ranges[-1] = (ranges[-1][0], id_)
        else:
            ranges.append((id_, id_))
    return ranges


def give_back(connection: sqlite3.Connection, owner: str, first: int, last: int, *, deliveries: int = 1) -> int:
    """Requeue the owner's messages with these ids at their old positions; return their number.

    Args:
        deliveries: deliveries to add to the count; 0 for messages that were never delivered.
    """
    lease = (first, last, owner)
    connection.execute(
        "INSERT INTO ready SELECT queue, id, deliveries + ? FROM leases WHERE id BETWEEN ? AND ? AND owner = ?",
        (deliveries, *lease),
    )
    return connection.execute("DELETE FROM leases WHERE id BETWEEN ? AND ? AND owner = ?", lease).rowcount


def give_back_all(connection: sqlite3.Connection, owner: str) -> int:
    """Requeue all messages of the owner at their old positions and delete the owner; return their number."""
    connection.execute("INSERT INTO ready SELECT queue, id, deliveries + 1 FROM leases WHERE owner = ?", (owner,))
    count = connection.execute("DELETE FROM leases WHERE owner = ?", (owner,)).rowcount
    connection.execute("DELETE FROM consumers WHERE owner = ?", (owner,))
    drop_turns(connection, owner)
    connection.execute("DELETE FROM owners WHERE name = ?", (owner,))
    return count


def reap(connection: sqlite3.Connection, root: Path) -> int:
    """Requeue messages of dead owners; return their number."""
    count = 0
    for (owner,) in connection.execute("SELECT name FROM owners").fetchall():
        if not is_alive(root, owner):
            count += give_back_all(connection, owner)
            # An owner without a file counts as dead, so a rollback after this is harmless.
            remove_owner(root, owner)
    return count


def promote(connection: sqlite3.Connection, now: int) -> int:
    """Promote due messages; return their number. Some may be left: see `next_due`."""
    due = next_due(connection)
    if due is None or due > now:
        return 0
    count: int = connection.execute(_COUNT_DUE, (now, _PROMOTED_AT_ONCE)).fetchone()[0]
    create_queues(connection, {UNROUTABLE: Capacity()})
    facts = {"now": now, "count": count, "first": reserve_ids(connection, count)}
    for statement in (_MOVE_MESSAGES, _MOVE_READY, _DELETE_DUE):
        connection.execute(statement, facts)
    return count


def next_due(connection: sqlite3.Connection) -> int | None:
    """Return the due time of the next delayed message."""
    due: int | None = connection.execute("SELECT min(due) FROM delayed").fetchone()[0]
    return due


def has_turn(connection: sqlite3.Connection, queue: int, owner: str, taker: int) -> bool:
    """Whether the owner's taker may lease from the shard; a free shard becomes its own."""
    row = connection.execute("SELECT owner, taker FROM turns WHERE queue = ?", (queue,)).fetchone()
    if row is None:
        connection.execute("INSERT INTO turns (queue, owner, taker) VALUES (?, ?, ?)", (queue, owner, taker))
        return True
    return bool(row == (owner, taker))


def leave(connection: sqlite3.Connection, owner: str, taker: int, *, queue: int | None = None) -> None:
    """Release the taker's shards, or the one of a queue, as soon as none of its messages are leased."""
    connection.execute(
        "UPDATE turns SET is_leaving = 1 WHERE owner = ? AND taker = ? AND queue = coalesce(?, queue)",
        (owner, taker, queue),
    )
    release(connection)


def release(connection: sqlite3.Connection) -> bool:
    """End the turns of takers that have left; return whether there were any."""
    sql = "DELETE FROM turns WHERE is_leaving AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.queue = turns.queue)"
    return connection.execute(sql).rowcount > 0


def drop_turns(connection: sqlite3.Connection, owner: str) -> None:
    """End all turns of a dead owner."""
    connection.execute("DELETE FROM turns WHERE owner = ?", (owner,))
