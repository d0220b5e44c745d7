"""Dispatch within quotas: a tenant or user has no more jobs under way, and starts them no faster, than it may."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import DispatchBatch, Pick
from taskmq.model.jobs.quotas import Quotas, RunBook, looked_at, run_name
from taskmq.model.nodes import Placement, together
from taskmq_sql.jobs.values import owner_in
from taskmq_sql.sqlite.file.sets import select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.dispatches import hand_out, holds, under_way
from taskmq_sql.sqlite.quotas import usage_of, write_usage

__all__ = ["admit_placements", "dispatch_within"]

_UNDER_WAY: Final = "SELECT tenant, detail FROM job WHERE id IN (@values)"
_DETAIL: Final = "SELECT detail FROM job WHERE id = ?"
_WAITING: Final = """
    SELECT r.id, j.expires, j.detail FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? ORDER BY r.due, r.id LIMIT ?
"""


def dispatch_within(
    transaction: Transaction, partition: int, epoch: int, picks: Sequence[Pick], said: Quotas
) -> DispatchBatch | None:
    """Dispatch the first jobs of these lanes that their quotas let go."""
    if not holds(transaction, partition, epoch):
        return None
    connection, names, now = transaction.connection, transaction.names, transaction.now
    found: list[tuple[int, Any, str, str, bool]] = []
    depths = looked_at(said, [(pick.lane.tenant, pick.count) for pick in picks])
    for place, (pick, depth) in enumerate(zip(picks, depths, strict=True)):
        lane = pick.lane
        key = (names.find(connection, lane.queue), lane.priority, names.find(connection, lane.tenant), depth)
        for job, expires, detail in connection.execute(_WAITING, key).fetchall():
            is_over = expires is not None and expires <= now
            found.append((place, job, lane.tenant, owner_in(detail), is_over))
    book = _book(transaction, said, {(tenant, owner) for _, _, tenant, owner, _ in found})
    left = [pick.count for pick in picks]
    chosen: dict[bytes, str] = {}
    for place, job, tenant, owner, is_over in found:
        if left[place] > 0 and (is_over or book.admit(tenant=tenant, user=owner)):
            left[place] -= 1
            chosen[job] = ""
    write_usage(transaction, book.changed)
    return hand_out(transaction, partition, epoch, chosen)


def admit_placements(
    transaction: Transaction, said: Quotas, placements: Mapping[bytes, Placement]
) -> dict[bytes, Placement]:
    """Those of these that their quotas let go, counted in."""
    owners = {
        job: (each.tenant, owner_in(transaction.connection.execute(_DETAIL, (job,)).fetchone()[0]))
        for job, each in placements.items()
    }
    book = _book(transaction, said, set(owners.values()))
    admitted: set[bytes] = set()
    for unit in together(placements):
        if book.admit_all(owners[job] for job in unit):
            admitted.update(unit)
    write_usage(transaction, book.changed)
    return {job: each for job, each in placements.items() if job in admitted}


def _book(transaction: Transaction, said: Quotas, owners: Iterable[tuple[str, str]]) -> RunBook:
    connection, names = transaction.connection, transaction.names
    running = Counter(
        (names.name(connection, tenant), owner_in(detail))
        for tenant, detail in select_each(connection, _UNDER_WAY, under_way(transaction))
    )
    wanted = {run_name(tenant, each.user) for tenant, owner in owners for each in said.of(tenant, owner)}
    return RunBook(said, usage=usage_of(transaction, sorted(wanted)), running=running, now=transaction.now)
