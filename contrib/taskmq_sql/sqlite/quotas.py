"""What operators have said about quotas, what was submitted under them, and whether there is room for more."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.jobs import DispatchBatch, NewJob, Pick
from taskmq.model.jobs.quotas import (
    KEPT_DAYS,
    QuotaBook,
    QuotaExcess,
    Quotas,
    QuotaUsage,
    RunBook,
    limited_tenants,
    read_quotas,
    run_name,
    usage_name,
)
from taskmq_sql.jobs.values import decode_detail
from taskmq_sql.sqlite.file.connection import Transaction
from taskmq_sql.sqlite.file.sets import run_each, select_each
from taskmq_sql.sqlite.jobs.dispatches import hand_out, holds, under_way

__all__ = ["Room", "dispatch_within", "drop_usage", "limit", "quotas", "usage_of"]

_READ: Final = "SELECT content FROM quotas"
_FIRST: Final = "INSERT INTO quotas (id, version, content) VALUES (1, ?, ?) ON CONFLICT DO NOTHING"
_CHANGE: Final = "UPDATE quotas SET version = ?, content = ? WHERE version = ?"
_USAGE: Final = "SELECT name, day, jobs, bytes, used_until FROM quota_usage WHERE name IN (@values)"
_WRITE: Final = """
    INSERT INTO quota_usage (name, day, jobs, bytes, used_until) VALUES @rows
    ON CONFLICT (name) DO UPDATE SET day = excluded.day, jobs = excluded.jobs, bytes = excluded.bytes,
        used_until = excluded.used_until
"""
# A rate may be used up for longer than a day.
_DROP: Final = "DELETE FROM quota_usage WHERE day < ? AND used_until < ?"
_UNDER_WAY: Final = "SELECT tenant, detail FROM job WHERE id IN (@values)"
_WAITING: Final = """
    SELECT r.id, j.expires, j.detail FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? ORDER BY r.due, r.id LIMIT ?
"""
# So many jobs of a lane are looked at, for those that others of its tenant do not keep from going.
_LOOKED_AT: Final = 500
_DAY: Final = 86_400_000
# One probe of the key a lane, as the list of lanes goes.
_PLACES: Final = """
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
_COUNT: Final = """
    SELECT count(*) FROM (SELECT 1 FROM ready WHERE queue = ? AND priority = ? AND tenant = ? LIMIT ?)
"""


def quotas(transaction: Transaction) -> Quotas:
    """What was said last."""
    row = transaction.connection.execute(_READ).fetchone()
    return read_quotas(None if row is None else row[0])


def limit(transaction: Transaction, new: Quotas) -> bool:
    """Say it; whether what was said before is one version older."""
    content = msgspec.json.encode(new).decode()
    if new.version == 1:
        return transaction.connection.execute(_FIRST, (1, content)).rowcount == 1
    return transaction.connection.execute(_CHANGE, (new.version, content, new.version - 1)).rowcount == 1


def usage_of(transaction: Transaction, names: Sequence[str]) -> dict[str, QuotaUsage]:
    """What was submitted of late under these names."""
    rows = select_each(transaction.connection, _USAGE, names)
    return {name: QuotaUsage(*rest) for name, *rest in rows}


def dispatch_within(
    transaction: Transaction, slot: int, epoch: int, picks: Sequence[Pick], said: Quotas
) -> DispatchBatch | None:
    """Dispatch the first jobs of these lanes that their quotas let go."""
    if not holds(transaction, slot, epoch):
        return None
    connection, names, now = transaction.connection, transaction.names, transaction.now
    running = Counter(
        (names.name(connection, tenant), _owner_in(detail))
        for tenant, detail in select_each(connection, _UNDER_WAY, under_way(transaction))
    )
    found: list[tuple[int, Any, str, str, bool]] = []
    for place, pick in enumerate(picks):
        lane = pick.lane
        key = (names.find(connection, lane.queue), lane.priority, names.find(connection, lane.tenant), _LOOKED_AT)
        for job, expires, detail in connection.execute(_WAITING, key).fetchall():
            is_over = expires is not None and expires <= now
            found.append((place, job, lane.tenant, _owner_in(detail), is_over))
    wanted = {run_name(tenant, each.user) for _, _, tenant, owner, _ in found for each in said.of(tenant, owner)}
    book = RunBook(said, usage=usage_of(transaction, sorted(wanted)), running=running, now=now)
    left = [pick.count for pick in picks]
    chosen: dict[bytes, str] = {}
    for place, job, tenant, owner, is_over in found:
        if left[place] > 0 and (is_over or book.admit(tenant=tenant, user=owner)):
            left[place] -= 1
            chosen[job] = ""
    _write(transaction, book.changed)
    return hand_out(transaction, slot, epoch, chosen)


def drop_usage(transaction: Transaction) -> None:
    """Forget what was submitted on days that are long over."""
    transaction.connection.execute(_DROP, (transaction.now // _DAY - KEPT_DAYS, transaction.now))


class Room:
    """Whether there is room for jobs that are submitted in one transaction; made where there are quotas at all.

    Args:
        jobs: that may be submitted.
    """

    def __init__(self, transaction: Transaction, said: Quotas, jobs: Iterable[NewJob]) -> None:
        self._transaction = transaction
        owners = {(job.tenant, _owner(job)) for job in jobs}
        names = {usage_name(each.tenant, each.user) for tenant, owner in owners for each in said.of(tenant, owner)}
        self._book = QuotaBook(
            said,
            usage=usage_of(transaction, sorted(names)),
            queued=self._queued(said, limited_tenants(said, [tenant for tenant, _ in owners])),
            now=transaction.now,
        )

    def admit(self, job: NewJob) -> QuotaExcess | None:
        """Count the job in, or say what it would go beyond."""
        is_queued = not job.held and job.due <= self._transaction.now
        return self._book.admit(tenant=job.tenant, user=_owner(job), size=len(job.body), is_queued=is_queued)

    def write(self) -> None:
        """Write down what was counted in."""
        _write(self._transaction, self._book.changed)

    def _queued(self, said: Quotas, tenants: Sequence[str]) -> dict[str, int]:
        connection, names = self._transaction.connection, self._transaction.names
        places = connection.execute(_PLACES).fetchall() if tenants else []
        found: dict[str, int] = {}
        for tenant in tenants:
            if (number := names.find(connection, tenant)) is None:
                continue
            # More than the limit is not worth counting.
            left = most = max(each.queued or 0 for each in said.of(tenant))
            for place in places:
                if left == 0:
                    break
                left -= connection.execute(_COUNT, (*place, number, left)).fetchone()[0]
            found[tenant] = most - left
        return found


def _write(transaction: Transaction, usage: Mapping[str, QuotaUsage]) -> None:
    rows = [(name, *msgspec.structs.astuple(each)) for name, each in usage.items()]
    run_each(transaction.connection, _WRITE, rows)


def _owner_in(text: str | None) -> str:
    detail = decode_detail(text)
    return "" if detail is None else detail.owner


def _owner(job: NewJob) -> str:
    return "" if job.detail is None else job.detail.owner
