"""Backlogs of queues and tenants: due jobs that no scheduler has dispatched yet, and the lanes of the ready ones."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from taskmq.contracts.jobs import JobRecord, QueueBacklog, TenantBacklog, WaitingLane
from taskmq_sql.steps import JobId, Runner, Steps, ask, find_numbers, first, job_id, names_of

# Both read an index alone. That of gates has no queue, so its limit bounds what the partition's other queues cost.
_READY: Final = """
select count(*), min(due) from (select due from taskmq.ready where queue = $1 limit $2) found"""
_GATED: Final = """
select count(*), min(due) from (select queue, due from taskmq.gated where partition = $1 limit $2) found
where queue = $3"""
_LANES: Final = """
select priority, tenant, count(*),
  sum(case when (due + ($3::bigint - priority) * $4::bigint, id) < ($2, $5) then 1 else 0 end),
  sum(case when id = $5 then 1 else 0 end)
from (select priority, tenant, due, id from taskmq.ready where queue = $1 limit $6) found
group by priority, tenant"""

_TENANTS: Final = """
select tenant, jobs, due, id from (
  select tenant, due, id, count(*) over (partition by tenant) as jobs,
    row_number() over (partition by tenant order by due, id) as place
  from (select * from (select tenant, due, id from taskmq.ready limit $1) lanes
    union all select * from (select tenant, due, id from taskmq.gated limit $1) gates) waiting) numbered
where place = 1 order by due, id"""


class SqlBacklogs:
    """Backlogs of a `DispatchStore`, from the database's tables.

    Args:
        partition_of: returns the partition of a queue.
    """

    def __init__(self, runner: Runner, partition_of: Callable[[str], int]) -> None:
        self._runner = runner
        self._partition_of = partition_of

    async def read(self, queues: Sequence[str], most: int) -> dict[str, QueueBacklog]:
        """See `DispatchStore.backlog`."""
        return await self._runner.read(partial(self._read, queues, most))

    def _read(self, queues: Sequence[str], most: int) -> Steps[dict[str, QueueBacklog]]:
        found: dict[str, QueueBacklog] = {}
        for queue, number in (yield from find_numbers("queue", queues)).items():
            ready = yield from first(_READY, number, most)
            gated = yield from first(_GATED, self._partition_of(queue), most, number)
            parts = [part for part in (ready, gated) if part is not None and part[0]]
            if parts:
                found[queue] = QueueBacklog(min(sum(part[0] for part in parts), most), min(part[1] for part in parts))
        return found

    async def read_tenants(self, most: int) -> list[TenantBacklog]:
        """See `DispatchStore.tenant_backlogs`."""
        return await self._runner.read(partial(_read_tenants, most))

    async def read_lanes(self, job: JobRecord, rise: int, most: int) -> list[WaitingLane]:
        """See `DispatchStore.waiting_lanes`."""
        return await self._runner.read(partial(self._read_lanes, job, rise, most))

    def _read_lanes(self, job: JobRecord, rise: int, most: int) -> Steps[list[WaitingLane]]:
        numbers = yield from find_numbers("queue", [job.queue])
        rows = yield from ask(_LANES, numbers.get(job.queue), job.due, job.priority, rise, JobId(job.id), most + 1)
        if sum(row[2] for row in rows) > most or not any(row[4] for row in rows):
            return []
        names = yield from names_of("tenant", (row[1] for row in rows))
        return [WaitingLane(row[0], names[row[1]], row[2], row[3]) for row in rows]


def _read_tenants(most: int) -> Steps[list[TenantBacklog]]:
    rows = yield from ask(_TENANTS, most)
    names = yield from names_of("tenant", (row[0] for row in rows))
    return [TenantBacklog(names[row[0]], row[1], row[2], job_id(row[3])) for row in rows]
