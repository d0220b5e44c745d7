"""Whose turn it is at a shard of an ordered queue, in the file of `local://`.

The first who consumes or looks has the turn, and keeps it until it has left and holds nothing of the shard any more.
A dead owner's turns go with what it held, in one transaction: what it had comes first to the next one.
"""

import sqlite3

__all__ = ["drop_turns", "has_turn", "leave", "release"]


def has_turn(connection: sqlite3.Connection, queue: int, owner: str, taker: int) -> bool:
    """Whether the owner's taker may take from the shard; takes the turn when nobody has it."""
    row = connection.execute("SELECT owner, taker FROM turns WHERE queue = ?", (queue,)).fetchone()
    if row is None:
        connection.execute("INSERT INTO turns (queue, owner, taker) VALUES (?, ?, ?)", (queue, owner, taker))
        return True
    return bool(row == (owner, taker))


def leave(connection: sqlite3.Connection, owner: str, taker: int) -> None:
    """Give up the taker's turns, as soon as nothing of the shard is in hand."""
    connection.execute("UPDATE turns SET is_leaving = 1 WHERE owner = ? AND taker = ?", (owner, taker))
    release(connection)


def release(connection: sqlite3.Connection) -> bool:
    """End the turns of those who have left; whether there were any."""
    sql = "DELETE FROM turns WHERE is_leaving AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.queue = turns.queue)"
    return connection.execute(sql).rowcount > 0


def drop_turns(connection: sqlite3.Connection, owner: str) -> None:
    """End all turns of a dead owner."""
    connection.execute("DELETE FROM turns WHERE owner = ?", (owner,))
