"""Backlogs of queues and tenants: due jobs that no scheduler has dispatched yet, and the lanes of the ready ones."""

from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.jobs import JobRecord, Lane, QueueBacklog, TenantBacklog, WaitingLane
from taskmq_sql.steps import JobId, Runner, SqlCalls, Steps, ask, find_numbers, first, job_id, names_of, read_call

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
_COUNTS: Final = """
select priority, tenant, count(*) from (select priority, tenant from taskmq.ready where queue = $1 limit $2) found
group by priority, tenant"""

_TENANTS: Final = """
select tenant, jobs, due, id from (
  select tenant, due, id, count(*) over (partition by tenant) as jobs,
    row_number() over (partition by tenant order by due, id) as place
  from (select * from (select tenant, due, id from taskmq.ready limit $1) lanes
    union all select * from (select tenant, due, id from taskmq.gated limit $1) gates) waiting) numbered
where place = 1 order by due, id"""


class SqlBacklogs(SqlCalls):
    """Backlogs of a `DispatchStore`, from the database's tables.

    Args:
        partition_of: returns the partition of a queue.
    """

    def __init__(self, runner: Runner, partition_of: Callable[[str], int]) -> None:
        super().__init__(runner)
        self._partition_of = partition_of

    @read_call
    def read(self, queues: Sequence[str], most: int) -> Steps[dict[str, QueueBacklog]]:
        """See `DispatchStore.backlog`."""
        found: dict[str, QueueBacklog] = {}
        for queue, number in (yield from find_numbers("queue", queues)).items():
            ready = yield from first(_READY, number, most)
            gated = yield from first(_GATED, self._partition_of(queue), most, number)
            parts = [part for part in (ready, gated) if part is not None and part[0]]
            if parts:
                found[queue] = QueueBacklog(min(sum(part[0] for part in parts), most), min(part[1] for part in parts))
        return found

    @read_call
    def read_tenants(self, most: int) -> Steps[list[TenantBacklog]]:
        """See `DispatchStore.tenant_backlogs`."""
        rows = yield from ask(_TENANTS, most)
        names = yield from names_of("tenant", (row[0] for row in rows))
        return [TenantBacklog(names[row[0]], row[1], row[2], job_id(row[3])) for row in rows]

    @read_call
    def count_lanes(self, queue: str, most: int) -> Steps[dict[Lane, int]]:
        """See `DispatchStore.count_lanes`."""
        numbers = yield from find_numbers("queue", [queue])
        rows = yield from ask(_COUNTS, numbers.get(queue), most)
        names = yield from names_of("tenant", (row[1] for row in rows))
        return {Lane(queue, row[0], names[row[1]]): row[2] for row in rows}

    @read_call
    def read_lanes(self, job: JobRecord, rise: int, most: int) -> Steps[list[WaitingLane]]:
        """See `DispatchStore.waiting_lanes`."""
        numbers = yield from find_numbers("queue", [job.queue])
        rows = yield from ask(_LANES, numbers.get(job.queue), job.due, job.priority, rise, JobId(job.id), most + 1)
        if sum(row[2] for row in rows) > most or not any(row[4] for row in rows):
            return []
        names = yield from names_of("tenant", (row[1] for row in rows))
        return [WaitingLane(row[0], names[row[1]], row[2], row[3]) for row in rows]
