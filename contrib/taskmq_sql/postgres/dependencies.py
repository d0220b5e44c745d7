"""Jobs that wait for others: created with their dependencies, released when those are met.

    submit    locks the live upstream jobs, decides, marks them, and writes unmet dependencies    `dependency`
    an end    of a marked job records itself, in the same statement                               `upstream_end`
    release   reads dependencies on the earliest ends, locks the waiting jobs, decides, writes
    a retry   of an upstream job lets the dependents that it ended wait again      `failed_dependency`

If a submission and an end of an upstream job race, that job's row decides. If the submission locked it first, the end
waits and then sees the mark. If the end came first, the submission finds the job in the history.
"""

from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import DependencyRefusal, NewJob
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.dependencies import JobDependency, after_upstream, end_reason
from taskmq.model.states import TERMINAL, JobState
from taskmq.model.units import DAY_MS
from taskmq_sql.jobs.codes import CODES, CONDITION_CODES, CONDITIONS, STATES
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.statements.dependencies import FREE, TAKE_ENDS, UPSTREAM_FAILED, WAITING_FOR

Unmet = Sequence[tuple[JobDependency, JobState]]
"""Dependencies of a job that are not met, with the states of the upstream jobs."""

# `_MARK` needs the stronger lock if a job has no mark yet, so this statement takes it. A submission that first
# shared the weaker lock would deadlock with an ending job, which waits for everyone who shares it.
_LIVE: Final = """
with look as materialized (
  select exists (select from taskmq.job where id = any($1::uuid[]) and has_dependents is null) as is_unmarked),
strong as (select j.id, j.tenant, j.state from look, taskmq.job j where is_unmarked and j.id = any($1::uuid[])
           order by j.id for no key update of j),
weak as (select j.id, j.tenant, j.state from look, taskmq.job j where not is_unmarked and j.id = any($1::uuid[])
         order by j.id for key share of j)
select * from strong union all select * from weak"""
_MARK: Final = """
update taskmq.job set has_dependents = true where id = any($1::uuid[]) and has_dependents is null"""
_ENDED: Final = """
select h.id, h.tenant, h.state from unnest($1::uuid[]) as i(id) cross join lateral
  (select id, tenant, state from taskmq.job_history where id = i.id and ended >= $2 order by ended desc limit 1) h"""
_WAIT: Final = """
update taskmq.job set state = 11 where id = any($1::uuid[]) and state = 12"""
_DEPEND: Final = """
insert into taskmq.dependency (upstream, dependent, condition)
select * from unnest($1::uuid[], $2::uuid[], $3::smallint[]) on conflict do nothing"""
_TELL: Final = """
insert into taskmq.upstream_end (id, state) select * from unnest($1::uuid[], $2::smallint[])"""
_LEAVE: Final = "delete from taskmq.upstream_end where number = any($1::bigint[])"
_TAKE_ENDS_OF: Final = """
select number, id, state from taskmq.upstream_end where id = any($1::uuid[]) order by number for update"""
_WAITING_JOBS: Final = """
select id, state from taskmq.job where id = any($1::uuid[]) and state in (11, 12) order by id for update"""
_SETTLE: Final = """
delete from taskmq.dependency where ctid = any(array(
  select d.ctid from unnest($1::uuid[], $2::uuid[]) as i(upstream, dependent) cross join lateral
    (select ctid from taskmq.dependency where upstream = i.upstream and dependent = i.dependent for update) d))"""
_STILL_WAITING: Final = """
select i.id as dependent from unnest($1::uuid[]) as i(id) cross join lateral
  (select from taskmq.dependency where dependent = i.id order by dependent, upstream limit 1) d"""
_UPSTREAM_OF: Final = """
select upstream, condition from taskmq.dependency where dependent = $1 order by dependent, upstream limit $2"""
_LEAVE_UPSTREAM: Final = """
with gone as (delete from taskmq.dependency where ctid = any(array(
  select d.ctid from unnest($1::uuid[]) as i(id) cross join lateral
    (select ctid from taskmq.dependency where dependent = i.id for update) d))
  returning upstream, dependent, condition)
insert into taskmq.failed_dependency (upstream, dependent, condition)
select upstream, dependent, condition from gone
union all select * from unnest($2::uuid[], $3::uuid[], $4::smallint[]) on conflict do nothing"""
"""Keeps the dependencies of these jobs, which have ended, for retries of their upstream jobs."""
_ENDS: Final = 100
_EDGES: Final = 500


class Upstream:
    """Upstream jobs of one submission as its transaction sees them; the live ones are locked."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {str(row["id"]): row for row in rows}

    def refusal(self, dependencies: Sequence[JobDependency], tenant: int) -> DependencyRefusal | None:
        """Return why a job of this tenant cannot depend on them; None if it can."""
        for each in dependencies:
            row = self._rows.get(each.id)
            if row is None or row["tenant"] != tenant:
                return DependencyRefusal(each.id, "unknown")
        return None

    def unmet(self, dependencies: Sequence[JobDependency]) -> Unmet:
        """Return the dependencies that are not met, with the states of the upstream jobs."""
        found = [(each, STATES[self._rows[each.id]["state"]]) for each in dependencies]
        return [
            (each, state)
            for each, state in found
            if state not in TERMINAL or after_upstream(each.condition, state) is not None
        ]

    def refresh(self, unmet: Unmet) -> Unmet:
        """Return the same dependencies with present states."""
        return [(each, STATES[self._rows[each.id]["state"]]) for each, _ in unmet]


async def find_upstream(connection: Connection, ids: Sequence[str]) -> Upstream:
    """Lock and return the jobs with these ids; live ones cannot end before the transaction does."""
    wanted = sorted({each for each in ids if is_job_id(each)})
    if not wanted:
        return Upstream(())
    live = await connection.fetch(_LIVE, wanted)
    found = {str(row["id"]) for row in live}
    if not (gone := [each for each in wanted if each not in found]):
        return Upstream(live)
    # A later snapshot, which contains jobs that ended since the statement before. The second lookup, over all days,
    # finds ids that a clock more than a day ahead created.
    ended = await connection.fetch(_ENDED, gone, min(submitted_at(each) for each in gone) - DAY_MS)
    found |= {str(row["id"]) for row in ended}
    if left := [each for each in gone if each not in found]:
        ended = [*ended, *await connection.fetch(_ENDED, left, 0)]
    return Upstream([*live, *ended])


async def wait(
    connection: Connection, jobs: Sequence[tuple[NewJob, Sequence[tuple[JobDependency, JobState]]]]
) -> None:
    """Make new jobs, submitted as held, wait for their unmet dependencies."""
    if not jobs:
        return
    await connection.execute(_WAIT, [job.id for job, _ in jobs if not job.held])
    await depend(connection, [(job.id, unmet) for job, unmet in jobs])


async def depend(connection: Connection, jobs: Sequence[tuple[str, Unmet]]) -> None:
    """Record the dependencies of jobs whose rows already have the waiting state."""
    live = {each.id for _, unmet in jobs for each, state in unmet if state not in TERMINAL}
    if live:
        await connection.execute(_MARK, sorted(live))
    edges = [(each.id, job_id, CONDITION_CODES[each.condition]) for job_id, unmet in jobs for each, _ in unmet]
    await connection.execute(_DEPEND, *([edge[column] for edge in edges] for column in range(3)))
    ended = {each.id: CODES[state] for _, unmet in jobs for each, state in unmet if state in TERMINAL}
    if ended:
        await connection.execute(_TELL, list(ended), list(ended.values()))


async def release(connection: Connection, limit: int) -> tuple[set[int], bool]:
    """Implement `DispatchStore.release_dependents` in the transaction; return queues, and whether more is left."""
    ends = await connection.fetch(TAKE_ENDS, _ENDS)
    if not ends:
        return set(), False
    edges = await connection.fetch(
        WAITING_FOR,
        [row["number"] for row in ends],
        [row["id"] for row in ends],
        [row["state"] for row in ends],
        limit,
    )
    # The last end may have more dependencies.
    done = [row["number"] for row in ends if len(edges) < limit or row["number"] < edges[-1]["number"]]
    queues, has_ended = await _settle(connection, edges) if edges else (set[int](), False)
    if done:
        await connection.execute(_LEAVE, done)
    return queues, has_ended or len(edges) == limit or len(ends) == _ENDS


async def settle_ends_of(connection: Connection, ids: Sequence[str]) -> None:
    """Apply the recorded ends of these jobs to all their dependents."""
    ends = await connection.fetch(_TAKE_ENDS_OF, ids)
    if not ends:
        return
    columns = [[row[name] for row in ends] for name in ("number", "id", "state")]
    while edges := await connection.fetch(WAITING_FOR, *columns, _EDGES):
        await _settle(connection, edges)
    await connection.execute(_LEAVE, columns[0])


async def _settle(connection: Connection, edges: Sequence[Row]) -> tuple[set[int], bool]:
    """Resolve these dependencies in order; return the queues that received jobs, and whether jobs ended."""
    dependents = sorted({str(row["dependent"]) for row in edges})
    # Locked before any write: if a job's last two dependencies end concurrently, the later one sees the other.
    waiting = {str(row["id"]): row for row in await connection.fetch(_WAITING_JOBS, dependents)}
    await connection.execute(_SETTLE, [row["upstream"] for row in edges], [row["dependent"] for row in edges])
    ends: dict[str, tuple[JobState, str]] = {}
    failed: list[Row] = []
    for row in edges:
        dependency = JobDependency(str(row["upstream"]), CONDITIONS[row["condition"]])
        state = STATES[row["state"]]
        after = after_upstream(dependency.condition, state)
        if after is not None and (job_id := str(row["dependent"])) in waiting:
            ends.setdefault(job_id, (after, end_reason(dependency, state)))
            failed.append(row)
    if ends:
        await connection.execute(
            UPSTREAM_FAILED,
            list(ends),
            [CODES[state] for state, _ in ends.values()],
            [why for _, why in ends.values()],
        )
        columns = ([row[name] for row in failed] for name in ("upstream", "dependent", "condition"))
        await connection.execute(_LEAVE_UPSTREAM, list(ends), *columns)
    rest = [job_id for job_id in waiting if job_id not in ends]
    left: set[str] = (
        {str(row["dependent"]) for row in await connection.fetch(_STILL_WAITING, rest)} if rest else set[str]()
    )
    free = [job_id for job_id in rest if job_id not in left]
    queues = {row["queue"] for row in await connection.fetch(FREE, free)} if free else set[int]()
    return queues, bool(ends)


async def unmet(connection: Connection, job_id: str, limit: int) -> list[JobDependency]:
    """Return the dependencies that a job still waits for."""
    rows = await connection.fetch(_UPSTREAM_OF, job_id, limit)
    return [JobDependency(str(row["upstream"]), CONDITIONS[row["condition"]]) for row in rows]
