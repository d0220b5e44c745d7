"""Administration of queues: statistics, purging, deletion."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from taskmq.contracts.broker import QueueStats
from taskmq.contracts.finding import Finding
from taskmq.model.topology import is_shard
from taskmq_local.database.tables import find_queue, has_turn, leave

# Takes about 15 ms.
_PURGED_AT_ONCE: Final = 5_000
_DELETE_MESSAGES: Final = """
    DELETE FROM messages WHERE id IN
    (SELECT id FROM ready WHERE queue = :queue ORDER BY id LIMIT :limit)
"""
_DELETE_READY: Final = """
    DELETE FROM ready WHERE queue = :queue AND id IN
    (SELECT id FROM ready WHERE queue = :queue ORDER BY id LIMIT :limit)
"""


def diagnose_rights(path: Path) -> list[Finding]:
    """Check whether other users of this host may read the messages."""
    try:
        mode, folder = path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777
    except FileNotFoundError:
        return []
    if not mode & 0o077 or not folder & 0o077:
        return []
    found = f"other users of this host may open {path} (mode {mode:o}), which has all arguments and results"
    return [Finding("warning", "broker", found, f"chmod 700 {path.parent}, if that is not intended")]


def register_owner(connection: sqlite3.Connection, owner: str) -> None:
    """Let other processes requeue the owner's messages once it is dead."""
    connection.execute("INSERT OR IGNORE INTO owners VALUES (?)", (owner,))


def register_consumer(connection: sqlite3.Connection, owner: str, number: int, queues: Sequence[str]) -> str | None:
    """Register the owner's consumer of these queues, and claim each free shard for it.

    Return the first queue that does not exist, in which case nothing is registered; else None.
    """
    ids: list[int] = []
    for name in queues:
        if (queue := find_queue(connection, name)) is None:
            return name
        ids.append(queue)
    register_owner(connection, owner)
    connection.executemany("INSERT INTO consumers VALUES (?, ?, ?)", [(owner, number, queue) for queue in ids])
    for name, queue in zip(queues, ids, strict=True):
        if is_shard(name):
            has_turn(connection, queue, owner, number)
    return None


def leave_queue(connection: sqlite3.Connection, owner: str, number: int, name: str) -> None:
    """Unregister the owner's consumer of one queue."""
    if (queue := find_queue(connection, name)) is not None:
        facts = (owner, number, queue)
        connection.execute("DELETE FROM consumers WHERE owner = ? AND number = ? AND queue = ?", facts)
        leave(connection, owner, number, queue=queue)


def queue_stats(connection: sqlite3.Connection, names: Sequence[str]) -> list[QueueStats]:
    """Return statistics of the queues that exist, in the given order."""
    return [
        QueueStats(
            queue=name,
            ready=_count(connection, "SELECT count(*) FROM ready WHERE queue = ?", queue),
            unsettled=_count(connection, "SELECT count(*) FROM leases WHERE queue = ?", queue),
            delayed=_count(connection, "SELECT count(*) FROM delayed WHERE queue = ?", name),
            consumers=_count(connection, "SELECT count(*) FROM consumers WHERE queue = ?", queue),
        )
        for name in names
        if (queue := find_queue(connection, name)) is not None
    ]


def purge_some(connection: sqlite3.Connection, name: str) -> tuple[int, bool] | None:
    """Delete some ready messages; return their number and whether any are left, None if the queue does not exist."""
    queue = find_queue(connection, name)
    if queue is None:
        return None
    count = _delete_ready(connection, queue, _PURGED_AT_ONCE)
    return count, count == _PURGED_AT_ONCE


def delete_queue(connection: sqlite3.Connection, name: str) -> int | None:
    """Delete the queue with its ready and leased messages; return the number of ready ones, None if it does not
    exist.

    Delayed messages stay; when due, they move to `taskmq.unroutable`.
    """
    queue = find_queue(connection, name)
    if queue is None:
        return None
    count = _delete_ready(connection, queue, -1)
    connection.execute("DELETE FROM messages WHERE id IN (SELECT id FROM leases WHERE queue = ?)", (queue,))
    connection.execute("DELETE FROM leases WHERE queue = ?", (queue,))
    for table in ("consumers", "capacities", "turns"):
        connection.execute(f"DELETE FROM {table} WHERE queue = ?", (queue,))  # noqa: S608 - constant names
    connection.execute("DELETE FROM queues WHERE id = ?", (queue,))
    return count


def _delete_ready(connection: sqlite3.Connection, queue: int, limit: int) -> int:
    facts = {"queue": queue, "limit": limit}
    connection.execute(_DELETE_MESSAGES, facts)
    return connection.execute(_DELETE_READY, facts).rowcount


def _count(connection: sqlite3.Connection, sql: str, key: int | str) -> int:
    count: int = connection.execute(sql, (key,)).fetchone()[0]
    return count
