"""What is allocated of nodes, and by whom."""

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
    added,
    best_fit,
    has_labels,
    reservable,
)
from taskmq_sql.jobs.codes import UNDERWAY_CODES
from taskmq_sql.steps import Query, Row, Steps, ask, clock, first

__all__ = [
    "CLOSE", "allocate", "allocations", "close_all", "placed_rows", "release", "reserve", "take", "used",
]  # fmt: skip

CLOSE: Final = "update taskmq.allocation set ended = $1 where node = $2 and ended is null"
_ENTRY: Final = "a.id, a.node, a.label, a.tenant, a.task, a.amounts, a.since, a.until, a.ended"
_UNDER_WAY: Final = f"""exists (
  select 1 from taskmq.job j where j.id = a.job and j.token = a.token
  and j.state in ({", ".join(map(str, UNDERWAY_CODES))}))"""
_IS_HELD: Final = f"(a.token is null or {_UNDER_WAY})"
_USED: Final = f"""
select a.node, a.amounts from taskmq.allocation a
where a.ended is null and (a.until is null or a.until > $1) and {_IS_HELD}"""
# The row is written to, so that another allocation there at the same time waits, and sees this afterwards.
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
"""All nodes, as a call finds them."""


def used(now: int) -> Steps[dict[str, dict[str, float]]]:
    """What is allocated, by node."""
    found: dict[str, dict[str, float]] = {}
    for node, amounts in (yield from ask(_USED, now)):
        found[node] = added(found.get(node, {}), _amounts.decode(amounts))
    return found


def reserve(now: int, placements: Sequence[Placement], find: Finder) -> Steps[list[Placement]]:
    """Of these the ones that can be; until the end of the transaction no other one allocates on their nodes."""
    yield from _lock({placement.node for placement in placements})
    return reservable(placements, (yield from find(now)))


def take(now: int, taken: Iterable[tuple[Placement, object, int]]) -> Steps[None]:
    """Write down what jobs have got: each with the database's id of its job, and the token of its dispatch."""
    for placement, job, token in taken:
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
            raise InvalidOption(f"allocation {new.id} is one of something else: choose another id")
        return found
    while True:
        wanted = [
            node for node in (yield from find(now)) if new.node in (None, node.name) and has_labels(node, new.labels)
        ]
        best = best_fit(new.amounts, wanted)
        if best is None:
            return None
        yield from _lock({best.name})
        # Another one may have been faster: then another one is the best, perhaps.
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
    """Write down of what is over that it has ended."""
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
    """Id, token, node, epoch and amounts of each job under way that was placed."""
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
