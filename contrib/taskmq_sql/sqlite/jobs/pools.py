"""What operators have said about policies and pools, and the first jobs of lanes, by which some policies go."""

from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import Lane, LaneHead
from taskmq.model.jobs.pools import Sharing, read_sharing
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.dispatches import lanes

__all__ = ["heads", "share", "sharing"]

_READ: Final = "SELECT content FROM sharing"
_FIRST: Final = "INSERT INTO sharing (id, version, content) VALUES (1, ?, ?) ON CONFLICT DO NOTHING"
_CHANGE: Final = "UPDATE sharing SET version = ?, content = ? WHERE version = ?"
_HEAD: Final = """
    SELECT r.due, j.expires FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? ORDER BY r.due, r.id LIMIT 1
"""


def sharing(transaction: Transaction) -> Sharing:
    """What was said last."""
    row = transaction.connection.execute(_READ).fetchone()
    return read_sharing(None if row is None else row[0])


def share(transaction: Transaction, new: Sharing) -> bool:
    """Say it; whether what was said before is one version older."""
    content = msgspec.json.encode(new).decode()
    if new.version == 1:
        return transaction.connection.execute(_FIRST, (1, content)).rowcount == 1
    return transaction.connection.execute(_CHANGE, (new.version, content, new.version - 1)).rowcount == 1


def heads(transaction: Transaction, queues: Sequence[str]) -> dict[Lane, LaneHead]:
    """The first job of each lane of these queues."""
    found: dict[Lane, LaneHead] = {}
    number, connection = transaction.names.id, transaction.connection
    for lane in lanes(transaction):
        if lane.queue in queues:
            place = (number(connection, lane.queue), lane.priority, number(connection, lane.tenant))
            due, expires = connection.execute(_HEAD, place).fetchone()
            found[lane] = LaneHead(due, expires)
    return found
