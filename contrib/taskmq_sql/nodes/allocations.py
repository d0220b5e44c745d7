"""Allocations on nodes, and the usage they add up to."""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.envelope import new_job_id
from taskmq.model.nodes import (
    Allocation,
    AllocationFilter,
    HostNode,
    NewAllocation,
    Placement,
    add_amounts,
    best_fit,
    has_labels,
    reservable,
)
from taskmq_sql.jobs.codes import UNDERWAY_CODES
from taskmq_sql.steps import Query, Row, Steps, ask, clock, first

CLOSE: Final = "update taskmq.allocation set ended = $1 where node = $2 and ended is null"
_ENTRY: Final = "a.id, a.node, a.label, a.tenant, a.task, a.amounts, a.since, a.until, a.ended"
_UNDER_WAY: Final = f"""exists (
  select 1 from taskmq.job j where j.id = a.job and j.token = a.token
  and j.state in ({", ".join(map(str, UNDERWAY_CODES))}))"""
_IS_HELD: Final = f"(a.token is null or {_UNDER_WAY})"
_USED: Final = f"""
select a.node, a.amounts from taskmq.allocation a
where a.ended is null and (a.until is null or a.until > $1) and {_IS_HELD}"""
# Writes the row: a concurrent allocation on the node waits, and then sees this one.
_LOCK: Final = """
update taskmq.node set epoch = epoch where name = $1"""
_ADD: Final = """
insert into taskmq.allocation (id, node, epoch, job, token, label, tenant, task, amounts, since, until)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"""
_OVER: Final = "update taskmq.allocation set ended = until where ended is null and until <= $1"
_LEFT: Final = f"""
update taskmq.allocation set ended = $1
where id in (select a.id from taskmq.allocation a where a.ended is null and not {_IS_HELD})"""
_FIND: Final = f"select {_ENTRY} from taskmq.allocation a where a.id = $1"
_RELEASE: Final = "update taskmq.allocation set ended = $2 where id = $1 and ended is null and token is null"
_PLACED: Final = f"""
select a.label, a.token, a.node, a.epoch, a.amounts from taskmq.allocation a
where a.label = $1 and {_UNDER_WAY}"""

_amounts: Final = msgspec.json.Decoder(dict[str, float])

Finder = Callable[[int], Generator[Query, Sequence[Row], list[HostNode]]]
"""Reads all nodes within a call."""


def usage_by_node(now: int) -> Steps[dict[str, dict[str, float]]]:
    """Return the allocated amounts, by node."""
    found: dict[str, dict[str, float]] = {}
    for node, amounts in (yield from ask(_USED, now)):
        found[node] = add_amounts(found.get(node, {}), _amounts.decode(amounts))
    return found


def reserve(now: int, placements: Sequence[Placement], find: Finder) -> Steps[list[Placement]]:
    """Lock the nodes until the end of the transaction; return the placements that fit."""
    yield from _lock({placement.node for placement in placements})
    return reservable(placements, (yield from find(now)))


def insert_allocations(now: int, jobs: Iterable[tuple[Placement, object, int]]) -> Steps[None]:
    """Insert the allocations of jobs, each with the database's job id and the dispatch token."""
    for placement, job, token in jobs:
        yield from ask(
            _ADD,
            new_job_id(now, os.urandom(10)),
            placement.node,
            placement.epoch,
            job,
            token,
            placement.job,
            placement.tenant,
            placement.task,
            msgspec.json.encode(placement.amounts).decode(),
            now,
            None,
        )


def allocate(new: NewAllocation, find: Finder) -> Steps[Allocation | None]:
    now = yield from clock()
    if (known := (yield from first(_FIND, new.id))) is not None:
        found = _allocation(known)
        if (found.job, found.tenant, found.amounts) != (new.job, new.tenant, new.amounts):
            raise InvalidOption(f"allocation {new.id} already exists for something else: choose another id")
        return found
    while True:
        wanted = [
            node for node in (yield from find(now)) if new.node in (None, node.name) and has_labels(node, new.labels)
        ]
        best = best_fit(new.amounts, wanted)
        if best is None:
            return None
        yield from _lock({best.name})
        # A concurrent call may have allocated first; then another node may be the best one.
        again = {node.name: node for node in (yield from find(now))}.get(best.name)
        if again is not None and best_fit(new.amounts, [again]) is not None:
            break
    yield from ask(
        _ADD,
        new.id,
        best.name,
        best.epoch,
        None,
        None,
        new.job,
        new.tenant,
        "",
        msgspec.json.encode(new.amounts).decode(),
        now,
        None if new.ttl is None else now + new.ttl,
    )
    row = yield from first(_FIND, new.id)
    assert row is not None
    return _allocation(row)


def release(allocation: str) -> Steps[Allocation | None]:
    now = yield from clock()
    yield from ask(_RELEASE, allocation, now)
    row = yield from first(f"{_FIND} and a.token is null", allocation)
    return None if row is None else _allocation(row)


def close_all(now: int) -> Steps[None]:
    """Record the end of allocations that have expired or lost their job."""
    yield from ask(_OVER, now)
    yield from ask(_LEFT, now)


def allocations(which: AllocationFilter, after: str | None, limit: int) -> Steps[list[Allocation]]:
    args: list[object] = []
    conditions = ["a.ended is null"] if which.is_open else []
    for condition, value in (
        ("a.node = ${}", which.node),
        ("a.label = ${}", which.job),
        ("a.tenant = ${}", which.tenant),
        ("a.since < ${}", which.until),
        ("(a.ended is null or a.ended > ${})", which.since),
        ("a.id < ${}", after),
    ):
        if value is not None:
            args.append(value)
            conditions.append(condition.format(len(args)))
    where = f"where {' and '.join(conditions)}" if conditions else ""
    args.append(limit)
    rows = yield from ask(
        f"select {_ENTRY} from taskmq.allocation a {where} order by a.id desc limit ${len(args)}", *args
    )
    return [_allocation(row) for row in rows]


def placed_rows(jobs: Sequence[str]) -> Steps[list[Row]]:
    """Return id, token, node, epoch and amounts of each placed job under way."""
    found: list[Row] = []
    for job in jobs:
        for *row, amounts in (yield from ask(_PLACED, job)):
            found.append((*row, _amounts.decode(amounts)))
    return found


def _lock(names: Iterable[str]) -> Steps[None]:
    for name in sorted(names):
        yield from ask(_LOCK, name)


def _allocation(row: Row) -> Allocation:
    allocation, node, label, tenant, task, amounts, since, until, ended = row
    return Allocation(
        id=allocation,
        node=node,
        job=label,
        tenant=tenant,
        task=task,
        amounts=_amounts.decode(amounts),
        since=since,
        until=until,
        ended=ended,
    )
