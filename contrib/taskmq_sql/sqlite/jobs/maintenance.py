"""Letting go of what has been kept for long enough, some at a time."""

from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import KeptJob
from taskmq.model.jobs.quotas import usage_prefix
from taskmq_sql.sqlite.file.sets import in_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import first_id, id_bytes, id_text
from taskmq_sql.sqlite.jobs.records import attempts, events, get

__all__ = [
    "drop_old",
    "ended_days",
    "ended_on",
    "forget_ended",
    "forget_some_of_tenant",
    "forget_tenant",
    "give_back_pages",
]

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
# From one day to the next that has any, by the index: so many looks as there are days.
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
_KNOWN: Final = "SELECT id FROM job_history WHERE id IN (@values)"
_TOLD: Final = (
    "DELETE FROM job_log WHERE job IN (@values)",
    "DELETE FROM run_failure WHERE job IN (@values)",
    # One by hand that is open belongs to a user of the node.
    "DELETE FROM allocation WHERE label IN (@values) AND (token IS NOT NULL OR ended IS NOT NULL)",
)
_DEFINITIONS: Final = (
    "DELETE FROM definition_version WHERE tenant = ?",
    "DELETE FROM definition WHERE tenant = ?",
)
# There may be very many: some at a time, so that no other change waits for all of them.
_MANY_OF_TENANT: Final = tuple(
    f"DELETE FROM {table} WHERE number IN (SELECT number FROM {table} WHERE tenant = ? ORDER BY number LIMIT ?)"
    for table in ("job_log", "run_failure")
)
_OF_TENANT: Final = (
    "DELETE FROM rollup WHERE tenant = ?",
    "DELETE FROM rollup_sum WHERE tenant = ? AND kind = 2",
    "DELETE FROM allocation WHERE tenant = ? AND ended IS NOT NULL",
    "DELETE FROM bulk WHERE tenant = ? AND ended IS NOT NULL",
    "DELETE FROM alert_rule WHERE tenant = ?",
    "DELETE FROM alert WHERE tenant = ?",
    "DELETE FROM alert_silence WHERE tenant = ?",
    "DELETE FROM alert_notice WHERE tenant = ?",
)
_USAGE: Final = "DELETE FROM quota_usage WHERE substr(name, 1, length(?1)) = ?1"


def drop_old(transaction: Transaction, keep_days: int) -> bool:
    """Drop some of the jobs of days (UTC) that were over so long ago, with all that is kept about them.

    Whether there may be more. By whole days, as archives are: a day that is in no file yet is kept.
    """
    connection = transaction.connection
    limit = (transaction.now // _DAY - keep_days) * _DAY
    if limit <= 0:
        return False
    ids = [row[0] for row in connection.execute(_OLD, (first_id(limit), limit, _JOBS)).fetchall()]
    _drop(transaction, ids)
    return len(ids) == _JOBS


def ended_days(transaction: Transaction) -> list[int]:
    """What `Retaining.ended_days` does."""
    return [row[0] for row in transaction.connection.execute(_DAYS, (_DAY,)).fetchall()]


def ended_on(transaction: Transaction, day: int, after: str | None, limit: int) -> list[KeptJob]:
    """What `Retaining.ended_on` does."""
    behind = b"" if after is None else id_bytes(after)
    rows = transaction.connection.execute(_ENDED, (day * _DAY, (day + 1) * _DAY, behind, limit)).fetchall()
    ids = [id_text(row[0]) for row in rows]
    jobs = [job for job_id in ids if (job := get(transaction, job_id)) is not None]
    return [
        KeptJob(job=job, events=events(transaction, job.id), attempts=attempts(transaction, job.id)) for job in jobs
    ]


def forget_ended(transaction: Transaction, ids: Sequence[str]) -> int:
    """What `Retaining.forget_ended` does."""
    known = [found for job_id in ids if (found := id_bytes(job_id)) is not None]
    gone = [row[0] for row in select_each(transaction.connection, _KNOWN, known)]
    _drop(transaction, gone)
    for statement in _TOLD:
        in_each(transaction.connection, statement, [id_text(job_id) for job_id in gone])
    return len(gone)


def forget_some_of_tenant(transaction: Transaction, tenant: str, limit: int = 1_000) -> bool:
    """Forget up to `limit` of each thing that a tenant may have very many of; whether there may be more."""
    gone = [transaction.connection.execute(statement, (tenant, limit)).rowcount for statement in _MANY_OF_TENANT]
    return max(gone) == limit


def forget_tenant(transaction: Transaction, tenant: str) -> None:
    """What `Retaining.forget_tenant` does once `forget_some_of_tenant` has."""
    if (number := transaction.names.find(transaction.connection, tenant)) is not None:
        for statement in _DEFINITIONS:
            transaction.connection.execute(statement, (number,))
    for statement in _OF_TENANT:
        transaction.connection.execute(statement, (tenant,))
    transaction.connection.execute(_USAGE, (usage_prefix(tenant),))


def _drop(transaction: Transaction, ids: Sequence[bytes]) -> None:
    connection = transaction.connection
    keys = "SELECT key, tenant FROM job_history WHERE id = ? AND key IS NOT NULL"
    found = [(*row, job_id) for job_id in ids for row in connection.execute(keys, (job_id,)).fetchall()]
    connection.executemany("DELETE FROM job_key WHERE key = ? AND tenant = ? AND id = ?", found)
    for statement in _DROPS:
        in_each(connection, statement, ids)


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
