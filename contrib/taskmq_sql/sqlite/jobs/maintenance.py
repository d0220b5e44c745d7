"""Letting go of what has been kept for long enough, some at a time."""

from typing import Final

from taskmq_sql.sqlite.file.connection import Transaction
from taskmq_sql.sqlite.file.sets import in_each
from taskmq_sql.sqlite.jobs.codes import first_id

__all__ = ["drop_old", "give_back_pages"]

_DAY: Final = 86_400_000
_JOBS: Final = 1_000
_PAGES: Final = 1_000

# Ids are in the order of submission, and no job ends before it was submitted.
_OLD: Final = "SELECT id FROM job_history WHERE id < ? AND finished < ? ORDER BY id LIMIT ?"
_DROPS: Final = (
    "DELETE FROM job_history WHERE id IN (@values)",
    "DELETE FROM attempt WHERE id IN (@values)",
    "DELETE FROM event WHERE id IN (@values)",
    "DELETE FROM label WHERE id IN (@values)",
)


def drop_old(transaction: Transaction, keep_days: int) -> bool:
    """Drop some of the jobs that ended so long ago, with all that is kept about them; whether there may be more."""
    connection = transaction.connection
    limit = transaction.now - keep_days * _DAY
    if limit <= 0:
        return False
    ids = [row[0] for row in connection.execute(_OLD, (first_id(limit), limit, _JOBS)).fetchall()]
    keys = "SELECT key, tenant FROM job_history WHERE id = ? AND key IS NOT NULL"
    found = [row for job_id in ids for row in connection.execute(keys, (job_id,)).fetchall()]
    connection.executemany("DELETE FROM job_key WHERE key = ? AND tenant = ?", found)
    for statement in _DROPS:
        in_each(connection, statement, ids)
    return len(ids) == _JOBS


def give_back_pages(transaction: Transaction) -> bool:
    """Give some of the file's free pages back to the system; whether there are more."""
    connection = transaction.connection
    free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    total: int = connection.execute("PRAGMA page_count").fetchone()[0]
    # Some are kept: what is written next needs no room then.
    if free <= max(_PAGES, total // 10):
        return False
    connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
    after: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return after < free
