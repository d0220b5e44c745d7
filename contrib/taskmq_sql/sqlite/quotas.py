"""Quotas in an SQLite file: their settings, recent usage, and admission of jobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import NewJob, counted_facts
from taskmq.model.jobs.quotas import (
    QuotaBook,
    QuotaExcess,
    Quotas,
    QuotaUsage,
    queued_limits,
    read_quotas,
    usage_names,
)
from taskmq_sql.settings import read_setting
from taskmq_sql.sqlite.file.sets import run_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.runner import drive

_USAGE: Final = "SELECT name, day, jobs, bytes, used_until FROM quota_usage WHERE name IN (@values)"
_WRITE: Final = """
    INSERT INTO quota_usage (name, day, jobs, bytes, used_until) VALUES @rows
    ON CONFLICT (name) DO UPDATE SET day = excluded.day, jobs = excluded.jobs, bytes = excluded.bytes,
        used_until = excluded.used_until
"""
# Jumps from one queue and priority to the next, with one index probe each.
_PAIRS: Final = """
    WITH RECURSIVE place (queue, priority) AS (
        SELECT * FROM (SELECT queue, priority FROM ready ORDER BY queue, priority LIMIT 1)
        UNION ALL
        SELECT
            (SELECT r.queue FROM ready AS r WHERE (r.queue, r.priority) > (place.queue, place.priority)
                ORDER BY r.queue, r.priority LIMIT 1),
            (SELECT r.priority FROM ready AS r WHERE (r.queue, r.priority) > (place.queue, place.priority)
                ORDER BY r.queue, r.priority LIMIT 1)
        FROM place WHERE place.queue IS NOT NULL
    )
    SELECT queue, priority FROM place WHERE queue IS NOT NULL
"""
_COUNT_GATED: Final = "SELECT count(*) FROM (SELECT 1 FROM gated WHERE tenant = ? LIMIT ?)"
_COUNT: Final = """
    SELECT count(*) FROM (SELECT 1 FROM ready WHERE queue = ? AND priority = ? AND tenant = ? LIMIT ?)
"""


def quotas(transaction: Transaction) -> Quotas:
    """Read the quotas in the transaction of a submission."""
    return read_quotas(drive(transaction, read_setting("quotas")))


def usage_of(transaction: Transaction, names: Sequence[str]) -> dict[str, QuotaUsage]:
    """Return the recent usage under these names."""
    rows = select_each(transaction.connection, _USAGE, names)
    return {name: QuotaUsage(*rest) for name, *rest in rows}


def write_usage(transaction: Transaction, usage: Mapping[str, QuotaUsage]) -> None:
    """Write the usage of these quotas."""
    rows = [(name, *msgspec.structs.astuple(each)) for name, each in usage.items()]
    run_each(transaction.connection, _WRITE, rows)


class Room:
    """Admission of jobs submitted in one transaction; created only if there are quotas.

    Args:
        jobs: candidates for submission.
    """

    def __init__(self, transaction: Transaction, limits: Quotas, jobs: Iterable[NewJob]) -> None:
        self._transaction = transaction
        owners = {(job.tenant, _owner(job)) for job in jobs}
        names = usage_names(limits, owners)
        self._book = QuotaBook(
            limits,
            usage=usage_of(transaction, names),
            queued=count_queued(transaction, queued_limits(limits, [tenant for tenant, _ in owners])),
            now=transaction.now,
        )

    def admit(self, job: NewJob) -> QuotaExcess | None:
        """Count the job; if a quota is exhausted, return the excess instead."""
        return self._book.admit(**counted_facts(job, now=self._transaction.now))

    def take_back(self, job: NewJob) -> None:
        """Undo the count of a job that was not created."""
        self._book.take_back(**counted_facts(job, now=self._transaction.now))

    def write(self) -> None:
        """Write the counted usage."""
        write_usage(self._transaction, self._book.changed)


def count_queued(transaction: Transaction, limits: Mapping[str, int]) -> dict[str, int]:
    """Count the waiting jobs of tenants, each up to its limit."""
    connection, names = transaction.connection, transaction.names
    pairs = connection.execute(_PAIRS).fetchall() if limits else []
    found: dict[str, int] = {}
    for tenant, most in limits.items():
        if (number := names.find(connection, tenant)) is None:
            continue
        left = most
        for pair in pairs:
            if left == 0:
                break
            left -= connection.execute(_COUNT, (*pair, number, left)).fetchone()[0]
        left -= connection.execute(_COUNT_GATED, (number, left)).fetchone()[0]
        found[tenant] = most - left
    return found


def _owner(job: NewJob) -> str:
    return "" if job.detail is None else job.detail.owner
