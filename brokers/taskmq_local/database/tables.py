"""Small pieces of SQL that several works share."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from taskmq.model.topology import UNROUTABLE
from taskmq_local.database.owners import is_alive, remove_owner
from taskmq_local.rules.capacity import Capacity

__all__ = [
    "as_ranges",
    "capacity_of",
    "create_queues",
    "drop_turns",
    "find_queue",
    "give_back",
    "give_back_all",
    "has_turn",
    "leave",
    "next_due",
    "promote",
    "reap",
    "release",
    "take_ids",
]

# Some 15 ms.
_PROMOTED_AT_ONCE: Final = 1_500
# :first is the id of the first message that moves. Where its queue has gone, a header tells which one it was.
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
    """The id of the physical queue; None when it does not exist."""
    row = connection.execute("SELECT id FROM queues WHERE name = ?", (name,)).fetchone()
    return row[0] if row is not None else None


def create_queues(connection: sqlite3.Connection, queues: Mapping[str, Capacity]) -> None:
    """Make the queues that do not exist; of those that do, the capacity is the last that was declared."""
    names = [(name,) for name in queues]
    connection.executemany("INSERT OR IGNORE INTO queues (name) VALUES (?)", names)
    connection.executemany("DELETE FROM capacities WHERE queue = (SELECT id FROM queues WHERE name = ?)", names)
    connection.executemany(
        "INSERT INTO capacities SELECT id, ?, ? FROM queues WHERE name = ?",
        [(capacity.length, capacity.bytes, name) for name, capacity in queues.items() if capacity.is_limited],
    )


def capacity_of(connection: sqlite3.Connection, queue: int) -> Capacity | None:
    """How much may be ready in the queue; None where there is no limit."""
    row = connection.execute("SELECT length, bytes FROM capacities WHERE queue = ?", (queue,)).fetchone()
    return None if row is None else Capacity(*row)


def take_ids(connection: sqlite3.Connection, count: int) -> int:
    """The first of `count` new ids."""
    sql = "UPDATE counters SET value = value + ? WHERE name = 'message' RETURNING value"
    last: int = connection.execute(sql, (count,)).fetchall()[0][0]
    return last - count + 1


def as_ranges(ids: list[int]) -> list[tuple[int, int]]:
    """`ids` as ranges of consecutive ones: settling in bulk is then a few statements, not one per message."""
    ranges: list[tuple[int, int]] = []
    for id_ in sorted(ids):
        if ranges and ranges[-1][1] == id_ - 1:
            ranges[-1] = (ranges[-1][0], id_)
        else:
            ranges.append((id_, id_))
    return ranges


def give_back(connection: sqlite3.Connection, owner: str, first: int, last: int, *, deliveries: int = 1) -> int:
    """Put the owner's messages of these ids to their old places; how many those were.

    Args:
        deliveries: how many deliveries to add to those that are counted; 0 for what was never handed out.
    """
    lease = (first, last, owner)
    connection.execute(
        "INSERT INTO ready SELECT queue, id, deliveries + ? FROM leases WHERE id BETWEEN ? AND ? AND owner = ?",
        (deliveries, *lease),
    )
    return connection.execute("DELETE FROM leases WHERE id BETWEEN ? AND ? AND owner = ?", lease).rowcount


def give_back_all(connection: sqlite3.Connection, owner: str) -> int:
    """Put all messages of the owner to their old places and forget it; how many those were."""
    connection.execute("INSERT INTO ready SELECT queue, id, deliveries + 1 FROM leases WHERE owner = ?", (owner,))
    count = connection.execute("DELETE FROM leases WHERE owner = ?", (owner,)).rowcount
    connection.execute("DELETE FROM consumers WHERE owner = ?", (owner,))
    drop_turns(connection, owner)
    connection.execute("DELETE FROM owners WHERE name = ?", (owner,))
    return count


def reap(connection: sqlite3.Connection, root: Path) -> int:
    """Give back what dead owners hold; how many messages those were."""
    count = 0
    for (owner,) in connection.execute("SELECT name FROM owners").fetchall():
        if not is_alive(root, owner):
            count += give_back_all(connection, owner)
            # An owner without a file is dead as well, so a rollback after this is harmless.
            remove_owner(root, owner)
    return count


def promote(connection: sqlite3.Connection, now: int) -> int:
    """Make ready what is due; how many messages. Some may be left: see `next_due`."""
    due = next_due(connection)
    if due is None or due > now:
        return 0
    count: int = connection.execute(_COUNT_DUE, (now, _PROMOTED_AT_ONCE)).fetchone()[0]
    create_queues(connection, {UNROUTABLE: Capacity()})
    facts = {"now": now, "count": count, "first": take_ids(connection, count)}
    for statement in (_MOVE_MESSAGES, _MOVE_READY, _DELETE_DUE):
        connection.execute(statement, facts)
    return count


def next_due(connection: sqlite3.Connection) -> int | None:
    """When the first delayed message is due."""
    due: int | None = connection.execute("SELECT min(due) FROM delayed").fetchone()[0]
    return due


def has_turn(connection: sqlite3.Connection, queue: int, owner: str, taker: int) -> bool:
    """Whether the owner's taker may take from the shard; takes the turn when it is free."""
    row = connection.execute("SELECT owner, taker FROM turns WHERE queue = ?", (queue,)).fetchone()
    if row is None:
        connection.execute("INSERT INTO turns (queue, owner, taker) VALUES (?, ?, ?)", (queue, owner, taker))
        return True
    return bool(row == (owner, taker))


def leave(connection: sqlite3.Connection, owner: str, taker: int, *, queue: int | None = None) -> None:
    """Give up the taker's turns, or that at one queue, as soon as nothing of the shard is in hand."""
    connection.execute(
        "UPDATE turns SET is_leaving = 1 WHERE owner = ? AND taker = ? AND queue = coalesce(?, queue)",
        (owner, taker, queue),
    )
    release(connection)


def release(connection: sqlite3.Connection) -> bool:
    """End the turns of those who have left; whether there were any."""
    sql = "DELETE FROM turns WHERE is_leaving AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.queue = turns.queue)"
    return connection.execute(sql).rowcount > 0


def drop_turns(connection: sqlite3.Connection, owner: str) -> None:
    """End all turns of a dead owner."""
    connection.execute("DELETE FROM turns WHERE owner = ?", (owner,))
