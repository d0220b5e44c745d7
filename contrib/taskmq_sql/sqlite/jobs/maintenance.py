"""Deletion of old jobs, in portions."""

from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import KeptJob
from taskmq.model.units import DAY_MS
from taskmq_sql.retention import EndedJobs, forget_jobs
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import first_id, id_bytes, id_text
from taskmq_sql.sqlite.jobs.records import attempts, events, get
from taskmq_sql.sqlite.runner import drive
from taskmq_sql.steps import Row, Steps, ask

# Takes about 10 ms.
_JOBS: Final = 500
_PAGES: Final = 1_000

# Ids sort by submission, and no job ends before its submission.
_OLD: Final = "SELECT id FROM job_history WHERE id < ? AND finished < ? ORDER BY id LIMIT ?"
# Jumps from one day with jobs to the next by the index: one probe per day.
_DAYS: Final = """
    WITH RECURSIVE day (n) AS (
        SELECT min(finished) / ?1 FROM job_history
        UNION ALL
        SELECT (SELECT min(finished) FROM job_history WHERE finished >= (n + 1) * ?1) / ?1
        FROM day WHERE n IS NOT NULL
    )
    SELECT n FROM day WHERE n IS NOT NULL
"""
_ENDED: Final = """
    SELECT id FROM job_history WHERE finished >= ? AND finished < ? AND id > ? ORDER BY id LIMIT ?
"""


def _forget_keys(rows: Sequence[Row]) -> Steps[None]:
    for job_id, tenant, key in rows:
        yield from ask("delete from taskmq.job_key where key = $1 and tenant = $2 and id = $3", key, tenant, job_id)


ENDED_JOBS: Final = EndedJobs(
    ("attempt", "event", "label", "job_progress", "saved_value", "saved_run", "tried_version", "claim_line"),
    "error",
    _forget_keys,
)
"""The tables with rows of ended jobs."""


def drop_old(transaction: Transaction, keep_days: int) -> bool:
    """Delete a portion of the jobs of days (UTC) that ended more than `keep_days` days ago, with everything about
    them.

    Return whether there may be more. Deletes whole days, as archives do, so a day not yet archived is kept.
    """
    connection = transaction.connection
    limit = (transaction.now // DAY_MS - keep_days) * DAY_MS
    if limit <= 0:
        return False
    ids = [row[0] for row in connection.execute(_OLD, (first_id(limit), limit, _JOBS)).fetchall()]
    drive(transaction, forget_jobs(ENDED_JOBS, ids))
    return len(ids) == _JOBS


def ended_days(transaction: Transaction) -> list[int]:
    """Implement `Retaining.ended_days`."""
    return [row[0] for row in transaction.connection.execute(_DAYS, (DAY_MS,)).fetchall()]


def ended_on(transaction: Transaction, day: int, after: str | None, limit: int) -> list[KeptJob]:
    """Implement `Retaining.ended_on`."""
    behind = b"" if after is None else id_bytes(after)
    rows = transaction.connection.execute(_ENDED, (day * DAY_MS, (day + 1) * DAY_MS, behind, limit)).fetchall()
    ids = [id_text(row[0]) for row in rows]
    jobs = [job for job_id in ids if (job := get(transaction, job_id)) is not None]
    return [
        KeptJob(job=job, events=events(transaction, job.id), attempts=attempts(transaction, job.id)) for job in jobs
    ]


def give_back_pages(transaction: Transaction) -> bool:
    """Return some of the file's free pages to the file system; return whether there are more."""
    connection = transaction.connection
    free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    total: int = connection.execute("PRAGMA page_count").fetchone()[0]
    # Some are kept for the next writes.
    if free <= max(_PAGES, total // 10):
        return False
    connection.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()
    after: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return after < free
