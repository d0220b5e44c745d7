"""Unique keys of jobs, and their owners."""

from typing import Final

from taskmq.contracts.jobs import NewJob, replacement
from taskmq.model.jobs.uniqueness import KeyHolder, UniqueKey, availability
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_text
from taskmq_sql.sqlite.jobs.updates import update

_HOLDER: Final = """
    SELECT u.id, u.until, coalesce(j.state, h.state), coalesce(j.version, h.version),
        coalesce(j.attempt > 1 OR coalesce(j.first_started, j.started) IS NOT NULL, 1)
    FROM unique_key AS u LEFT JOIN job AS j ON j.id = u.id LEFT JOIN job_history AS h ON h.id = u.id
    WHERE u.name = ?
"""
_TAKE: Final = """
    INSERT INTO unique_key (name, id, until) VALUES (?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET id = excluded.id, until = excluded.until
"""


def claim(transaction: Transaction, job: NewJob, job_id: bytes, key: UniqueKey) -> KeyHolder | None:
    """Give the job its key; if that is not possible, return the key's owner."""
    name = storable(key.name)
    holder = _holder(transaction, name)
    found = availability(key, holder, now=transaction.now)
    if found == "taken":
        return holder
    if found == "replaceable" and holder is not None:
        # No other process writes in between: the owner is as it was read.
        update(transaction, replacement(holder, by=job.id))
    transaction.connection.execute(_TAKE, (name, job_id, transaction.now + key.ttl))
    return None


def _holder(transaction: Transaction, name: str) -> KeyHolder | None:
    row = transaction.connection.execute(_HOLDER, (name,)).fetchone()
    if row is None or row[2] is None:
        return None
    return KeyHolder(id_text(row[0]), STATES[row[2]], row[3], bool(row[4]), row[1])
