"""Jobs that wait behind gates, in an SQLite file."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import Lane, Pick, ReadyJob
from taskmq.model.keys import is_line_key
from taskmq_sql.sqlite.file.sets import in_each, run_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text
from taskmq_sql.sqlite.jobs.dispatches import holds

_LOOK: Final = """
    SELECT r.id, j.task, j.body, coalesce(j.expires <= ?, 0) FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? ORDER BY r.due, r.id LIMIT ?
"""
_READY: Final = """
    SELECT r.queue, r.priority, r.tenant, r.due, r.id FROM job AS j CROSS JOIN ready AS r
    ON r.queue = j.queue AND r.priority = j.priority AND r.tenant = j.tenant AND r.due = j.due AND r.id = j.id
    WHERE j.id = ?
"""
_LEAVE: Final = "DELETE FROM ready WHERE queue = ? AND priority = ? AND tenant = ? AND due = ? AND id = ?"
_PUT: Final = "INSERT INTO gated (queue, priority, tenant, due, id, partition, gate) VALUES @rows"
_BEHIND: Final = """
    SELECT queue, priority, tenant, due, id, gate FROM gated WHERE partition = ? AND gate = ?
    ORDER BY priority DESC, due, id LIMIT ?
"""
_LINE_UP: Final = """
    INSERT INTO claim_line (name, id, queue)
    SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM claim_line WHERE id = ?2 AND name = ?1)
"""
_OPEN: Final = "DELETE FROM gated WHERE id IN (@values)"
_BACK: Final = "INSERT INTO ready (queue, priority, tenant, due, id) VALUES @rows"
_GATE_OF: Final = "SELECT gate FROM gated WHERE id = ?"


def look(transaction: Transaction, picks: Sequence[Pick]) -> list[ReadyJob]:
    """Return the first jobs of these lanes."""
    connection, names = transaction.connection, transaction.names
    found: list[ReadyJob] = []
    for pick in picks:
        queue, tenant = names.find(connection, pick.lane.queue), names.find(connection, pick.lane.tenant)
        rows = connection.execute(_LOOK, (transaction.now, queue, pick.lane.priority, tenant, pick.count)).fetchall()
        found += [
            ReadyJob(
                id=id_text(job), lane=pick.lane, task=names.name(connection, task), body=body, is_over=bool(is_over)
            )
            for job, task, body, is_over in rows
        ]
    return found


def put_behind(transaction: Transaction, partition: int, epoch: int, gates: Mapping[str, str]) -> None:
    """Move ready jobs out of their lanes, each behind its gate."""
    if not holds(transaction, partition, epoch):
        return
    rows: list[tuple[Any, ...]] = []
    for job, gate in gates.items():
        row = transaction.connection.execute(_READY, (id_bytes(job),)).fetchone()
        if row is not None:
            rows.append((*row, partition, gate))
    transaction.connection.executemany(_LEAVE, [row[:5] for row in rows])
    run_each(transaction.connection, _PUT, rows)
    lines = sorted((due, job, queue, gate) for queue, _, _, due, job, _, gate in rows if is_line_key(gate))
    transaction.connection.executemany(_LINE_UP, [(gate, job, queue) for _, job, queue, gate in lines])


def open_gates(
    transaction: Transaction, partition: int, epoch: int, gates: Mapping[str, int]
) -> list[tuple[str, Lane]]:
    """Move the first jobs behind these gates back into their lanes."""
    if not holds(transaction, partition, epoch):
        return []
    connection, names = transaction.connection, transaction.names
    rows = [
        row
        for gate, count in gates.items()
        for row in connection.execute(_BEHIND, (partition, gate, count)).fetchall()
    ]
    in_each(connection, _OPEN, [row[4] for row in rows])
    run_each(connection, _BACK, [row[:5] for row in rows])
    return [
        (gate, Lane(names.name(connection, queue), priority, names.name(connection, tenant)))
        for queue, priority, tenant, _, _, gate in rows
    ]


def gate_of(transaction: Transaction, job_id: str) -> str:
    """Return the gate that the job waits behind; "" if none."""
    row = transaction.connection.execute(_GATE_OF, (id_bytes(job_id),)).fetchone()
    return "" if row is None else str(row[0])
