"""Dispatch within quotas, which limit how many jobs a tenant or user runs and how fast it starts them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import DispatchBatch, Pick
from taskmq.model.jobs.quotas import Quotas, RunBook, looked_at, run_name
from taskmq.model.nodes import Placement, together
from taskmq_sql.jobs.values import owner_in
from taskmq_sql.sqlite.file.sets import select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.dispatches import dispatch_named, holds, under_way
from taskmq_sql.sqlite.quotas import usage_of, write_usage

_UNDER_WAY: Final = "SELECT tenant, detail FROM job WHERE id IN (@values)"
_DETAIL: Final = "SELECT detail FROM job WHERE id = ?"
_WAITING: Final = """
    SELECT r.id, j.expires, j.detail FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? ORDER BY r.due, r.id LIMIT ?
"""


def dispatch_within(
    transaction: Transaction, partition: int, epoch: int, picks: Sequence[Pick], limits: Quotas
) -> DispatchBatch | None:
    """Dispatch the first jobs of these lanes as far as their quotas allow."""
    if not holds(transaction, partition, epoch):
        return None
    connection, names, now = transaction.connection, transaction.names, transaction.now
    found: list[tuple[int, Any, str, str, bool]] = []
    depths = looked_at(limits, [(pick.lane.tenant, pick.count) for pick in picks])
    for index, (pick, depth) in enumerate(zip(picks, depths, strict=True)):
        lane = pick.lane
        key = (names.find(connection, lane.queue), lane.priority, names.find(connection, lane.tenant), depth)
        for job, expires, detail in connection.execute(_WAITING, key).fetchall():
            is_over = expires is not None and expires <= now
            found.append((index, job, lane.tenant, owner_in(detail), is_over))
    book = _book(transaction, limits, {(tenant, owner) for _, _, tenant, owner, _ in found})
    left = [pick.count for pick in picks]
    chosen: dict[bytes, str] = {}
    for index, job, tenant, owner, is_over in found:
        if left[index] > 0 and (is_over or book.admit(tenant=tenant, user=owner)):
            left[index] -= 1
            chosen[job] = ""
    write_usage(transaction, book.changed)
    return dispatch_named(transaction, partition, epoch, chosen)


def admit_placements(
    transaction: Transaction, limits: Quotas, placements: Mapping[bytes, Placement]
) -> dict[bytes, Placement]:
    """Count the placements that their quotas allow, and return them."""
    owners = {
        job: (each.tenant, owner_in(transaction.connection.execute(_DETAIL, (job,)).fetchone()[0]))
        for job, each in placements.items()
    }
    book = _book(transaction, limits, set(owners.values()))
    admitted: set[bytes] = set()
    for unit in together(placements):
        if book.admit_all(owners[job] for job in unit):
            admitted.update(unit)
    write_usage(transaction, book.changed)
    return {job: each for job, each in placements.items() if job in admitted}


def count_in_flight(transaction: Transaction, tenant: str) -> dict[str, int]:
    """See `DispatchStore.count_in_flight`."""
    return {owner: count for (name, owner), count in _running(transaction).items() if name == tenant}


def _book(transaction: Transaction, limits: Quotas, owners: Iterable[tuple[str, str]]) -> RunBook:
    wanted = {run_name(tenant, each.user) for tenant, owner in owners for each in limits.of(tenant, owner)}
    usage = usage_of(transaction, sorted(wanted))
    return RunBook(limits, usage=usage, running=_running(transaction), now=transaction.now)


def _running(transaction: Transaction) -> Counter[tuple[str, str]]:
    """Count the jobs under way, by tenant and owner."""
    connection, names = transaction.connection, transaction.names
    return Counter(
        (names.name(connection, tenant), owner_in(detail))
        for tenant, detail in select_each(connection, _UNDER_WAY, under_way(transaction))
    )
