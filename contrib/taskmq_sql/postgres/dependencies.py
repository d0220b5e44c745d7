"""Jobs that wait for others: made with what they wait for, and let go when that has ended.

    submit    locks the upstream jobs that live, judges, marks those, and writes what is unmet `dependency`
    an end    of a job that is marked writes itself down, in the same statement                `upstream_end`
    release   takes some dependencies of the earliest ends, locks the jobs that wait, decides, and writes

Where a submission and an end meet, the upstream job's row decides. The submission has locked it: the end waits, and
finds the mark. The end was first: the submission finds the job in the history, and judges by that.
"""

from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import DependencyRefusal, NewJob
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.dependencies import JobDependency, after_upstream, end_reason
from taskmq.model.states import TERMINAL, JobState
from taskmq_sql.jobs.codes import CODES, CONDITION_CODES, CONDITIONS, STATES
from taskmq_sql.jobs.partitions import DAY
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.statements import (
    FREE,
    LEAVE_UPSTREAM,
    SETTLE,
    STILL_WAITING,
    TAKE_ENDS,
    UPSTREAM_FAILED,
    UPSTREAM_OF,
    WAITING_FOR,
    WAITING_JOBS,
)

__all__ = ["Unmet", "Upstream", "depend", "find_upstream", "release", "unmet", "wait"]

Unmet = Sequence[tuple[JobDependency, JobState]]
"""What a job has to wait for, and the states of those jobs."""

# Where a job has no mark yet, `_MARK` needs the stronger lock, and it is taken here: a submission that shared the
# weaker one first would deadlock with a job that ends, which waits for all who share it.
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
_ENDS: Final = 100


class Upstream:
    """The jobs that others of one submission wait for, as their transaction sees them: those that live are locked."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {str(row["id"]): row for row in rows}

    def refusal(self, dependencies: Sequence[JobDependency], tenant: int) -> DependencyRefusal | None:
        """Why a job of this tenant cannot wait for them."""
        for each in dependencies:
            row = self._rows.get(each.id)
            if row is None or row["tenant"] != tenant:
                return DependencyRefusal(each.id, "unknown")
        return None

    def unmet(self, dependencies: Sequence[JobDependency]) -> Unmet:
        """Those that are not met, with the states of the upstream jobs."""
        found = [(each, STATES[self._rows[each.id]["state"]]) for each in dependencies]
        return [
            (each, state)
            for each, state in found
            if state not in TERMINAL or after_upstream(each.condition, state) is not None
        ]

    def again(self, unmet: Unmet) -> Unmet:
        """The same, as it is now."""
        return [(each, STATES[self._rows[each.id]["state"]]) for each, _ in unmet]


async def find_upstream(connection: Connection, ids: Sequence[str]) -> Upstream:
    """Lock and return the jobs of these ids: live ones do not end before the transaction does."""
    wanted = sorted({each for each in ids if is_job_id(each)})
    if not wanted:
        return Upstream(())
    live = await connection.fetch(_LIVE, wanted)
    found = {str(row["id"]) for row in live}
    if not (gone := [each for each in wanted if each not in found]):
        return Upstream(live)
    # Of a later snapshot: what has ended since the statement before is seen here. A clock that is a day ahead of ours
    # has made the ids of what only the second look finds.
    ended = await connection.fetch(_ENDED, gone, min(submitted_at(each) for each in gone) - DAY)
    found |= {str(row["id"]) for row in ended}
    if left := [each for each in gone if each not in found]:
        ended = [*ended, *await connection.fetch(_ENDED, left, 0)]
    return Upstream([*live, *ended])


async def wait(
    connection: Connection, jobs: Sequence[tuple[NewJob, Sequence[tuple[JobDependency, JobState]]]]
) -> None:
    """Let new jobs, which are held, wait for what is unmet of what they depend on."""
    if not jobs:
        return
    await connection.execute(_WAIT, [job.id for job, _ in jobs if not job.held])
    await depend(connection, [(job.id, unmet) for job, unmet in jobs])


async def depend(connection: Connection, jobs: Sequence[tuple[str, Unmet]]) -> None:
    """Write down what jobs of these ids wait for, whose rows say already that they do."""
    live = {each.id for _, unmet in jobs for each, state in unmet if state not in TERMINAL}
    if live:
        await connection.execute(_MARK, sorted(live))
    edges = [(each.id, job_id, CONDITION_CODES[each.condition]) for job_id, unmet in jobs for each, _ in unmet]
    await connection.execute(_DEPEND, *([edge[column] for edge in edges] for column in range(3)))
    ended = {each.id: CODES[state] for _, unmet in jobs for each, state in unmet if state in TERMINAL}
    if ended:
        await connection.execute(_TELL, list(ended), list(ended.values()))


async def release(connection: Connection, limit: int) -> tuple[set[int], bool]:
    """What `DispatchStore.release_dependents` does, in the connection's transaction: queues, and whether to go on."""
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
    # Of the last one that was looked at there may be more.
    done = [row["number"] for row in ends if len(edges) < limit or row["number"] < edges[-1]["number"]]
    queues, has_ended = await _settle(connection, edges) if edges else (set[int](), False)
    if done:
        await connection.execute(_LEAVE, done)
    return queues, has_ended or len(edges) == limit or len(ends) == _ENDS


async def _settle(connection: Connection, edges: Sequence[Row]) -> tuple[set[int], bool]:
    """Settle these dependencies, in their order: the queues that have got jobs, and whether jobs have ended."""
    dependents = sorted({str(row["dependent"]) for row in edges})
    # Locked before anything is written: of two ends of one job's last two dependencies, the later one sees the other.
    waiting = {str(row["id"]): row for row in await connection.fetch(WAITING_JOBS, dependents)}
    await connection.execute(SETTLE, [row["upstream"] for row in edges], [row["dependent"] for row in edges])
    ends: dict[str, tuple[JobState, str]] = {}
    for row in edges:
        dependency = JobDependency(str(row["upstream"]), CONDITIONS[row["condition"]])
        state = STATES[row["state"]]
        after = after_upstream(dependency.condition, state)
        if after is not None and (job_id := str(row["dependent"])) in waiting:
            ends.setdefault(job_id, (after, end_reason(dependency, state)))
    if ends:
        await connection.execute(
            UPSTREAM_FAILED,
            list(ends),
            [CODES[state] for state, _ in ends.values()],
            [why for _, why in ends.values()],
        )
        await connection.execute(LEAVE_UPSTREAM, list(ends))
    rest = [job_id for job_id in waiting if job_id not in ends]
    left: set[str] = (
        {str(row["dependent"]) for row in await connection.fetch(STILL_WAITING, rest)} if rest else set[str]()
    )
    free = [job_id for job_id in rest if job_id not in left]
    queues = {row["queue"] for row in await connection.fetch(FREE, free)} if free else set[int]()
    return queues, bool(ends)


async def unmet(connection: Connection, job_id: str, limit: int) -> list[JobDependency]:
    """What a job waits for still."""
    rows = await connection.fetch(UPSTREAM_OF, job_id, limit)
    return [JobDependency(str(row["upstream"]), CONDITIONS[row["condition"]]) for row in rows]
