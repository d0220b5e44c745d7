"""Places of runs whose workflow has `max_active_runs`.

    a run is queued  ->  its place waits, ordered by the starts of the runs
    a place is free  ->  the first waiting one is active, and its run gets a `begin` row
    a run ends       ->  its place is deleted, so another one is free

The start of a run adds its place. It takes no lock, so the transaction of a caller delays no other run. Only
transitions let runs begin and delete places, as their last statements: they hold the lock on the workflow of a tenant
for a short time, and no deadlock with the locks of other rows is possible. Runs without a limit have no place.
"""

from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Final, NamedTuple

from taskmq.contracts.jobs import RunPlace
from taskmq.model.runs.records import InboxRow, RunRecord
from taskmq_sql.runs.inbox import put_rows
from taskmq_sql.steps import JobId, Query, Steps, ask, first, job_id, lock, together

_LEAVE: Final = "delete from taskmq.run_place where run = any($1::uuid[])"
_ENTER: Final = """
insert into taskmq.run_place (run, tenant, workflow, created, generation, most)
@rows(uuid, text, text, bigint, int, int) on conflict (run) do nothing"""
_LOAD: Final = """
select (select count(*) from taskmq.run_place where tenant = $1 and workflow = $2 and is_active),
  (select most from taskmq.run_place where tenant = $1 and workflow = $2 order by created desc, run desc limit 1)"""
_NEXT: Final = """
select run, generation from taskmq.run_place where tenant = $1 and workflow = $2 and not is_active
order by created, run limit $3"""
_TAKE: Final = "update taskmq.run_place set is_active = true where run = any($1::uuid[])"
_WAITING: Final = """
select tenant, workflow, (select count(*) from taskmq.run_place q
  where q.tenant = p.tenant and q.workflow = p.workflow and not q.is_active
    and (q.created, q.run) < (p.created, p.run))
from taskmq.run_place p where run = $1 and not is_active"""

# Runs that one transaction lets begin.
_TOGETHER: Final = 100


class PlaceChange(NamedTuple):
    """The change of a transaction to the place of a run.

    Attributes:
        most: maximum of active runs, as the version of the run has it.
        leaves: whether the run ended.
        waits: whether the run is queued, after an earlier end if it was redriven.
    """

    run: RunRecord
    most: int
    leaves: bool
    waits: bool

    @property
    def workflow(self) -> tuple[str, str]:
        """Tenant and name of the workflow."""
        return self.run.tenant, self.run.workflow


def add_places(runs: Iterable[tuple[RunRecord, int]]) -> Query:
    """Add the places of queued runs, each with the maximum of its version, unless they have one."""
    return Query(
        _ENTER,
        tuple((JobId(run.id), run.tenant, run.workflow, run.created, run.generation, most) for run, most in runs),
    )


def change_places(changes: Collection[PlaceChange]) -> Steps[list[str]]:
    """Delete the places of ended runs, add those of queued ones, and let the next runs begin.

    Returns:
        ids of the runs that got rows in their inboxes.
    """
    ordered = sorted(changes, key=lambda each: each.workflow)
    yield from lock("/".join(workflow) for workflow, _ in groupby(ordered, key=lambda each: each.workflow))
    if left := [JobId(each.run.id) for each in ordered if each.leaves]:
        yield from ask(_LEAVE, left)
    # Redriven runs have no place, and neither have those that older code started.
    yield from together([add_places((each.run, each.most) for each in ordered if each.waits)])
    woken: list[str] = []
    for workflow, _ in groupby(ordered, key=lambda each: each.workflow):
        woken += yield from _let_begin(*workflow)
    return woken


def _let_begin(tenant: str, workflow: str) -> Steps[list[str]]:
    """Give the free places of a workflow to the runs that wait; return their ids."""
    ((active, most),) = yield from ask(_LOAD, tenant, workflow)
    free = min((most or 0) - active, _TOGETHER + 1)
    waiting = (yield from ask(_NEXT, tenant, workflow, free)) if free > 0 else ()
    if not waiting:
        return []
    rows: list[tuple[str, InboxRow | None]] = [
        (job_id(run), InboxRow(number=0, kind="begin", generation=generation))
        for run, generation in waiting[:_TOGETHER]
    ]
    yield from ask(_TAKE, [JobId(run) for run, _ in rows])
    # The next transition of a queued run continues.
    rows += [(job_id(run), None) for run, _ in waiting[_TOGETHER:]]
    yield from together([put_rows(rows)])
    return [run for run, _ in rows]


def find_place(run_id: str) -> Steps[RunPlace | None]:
    """Implement `RunStore.place`."""
    found = yield from first(_WAITING, JobId(run_id))
    if found is None:
        return None
    tenant, workflow, ahead = found
    ((active, most),) = yield from ask(_LOAD, tenant, workflow)
    return RunPlace(active=active, most=most, ahead=ahead)
