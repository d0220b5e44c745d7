"""Dependents that ended because of a job, and wait for its new run.

A dependency that ends its dependent moves to `failed_dependency`, with the dependent's other dependencies. When the
upstream job runs again, they move back, unless another one of them can never be met. Dependents of dependents follow.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import JobUpdate
from taskmq.model.jobs.dependencies import JobDependency, reattachment_note, unmet_conditions
from taskmq.model.states import TERMINAL, JobState
from taskmq_sql.jobs.codes import CONDITION_CODES, CONDITIONS
from taskmq_sql.postgres.connections import Connection
from taskmq_sql.postgres.dependencies import Unmet, depend, find_upstream, settle_ends_of
from taskmq_sql.postgres.statements import JOB_COLUMNS

_FORGET: Final = "delete from taskmq.failed_dependency where dependent = $1"
_DEPENDENTS: Final = """
select distinct dependent from taskmq.failed_dependency where upstream = any($1::uuid[])"""
_FIRST_DEPENDENTS: Final = """
select dependent from taskmq.failed_dependency where upstream = any($1::uuid[]) and condition = any($2::smallint[])"""
# Of two concurrent retries, the later one sees the dependencies that the earlier one has moved.
_LOCK: Final = """
select id from taskmq.job_history where id = any($1::uuid[]) and state in (9, 10) and retried_as is null
order by id for no key update"""
_RENAME: Final = """
update taskmq.failed_dependency set upstream = $2
where upstream = $1 and dependent = any($3::uuid[]) and condition = any($4::smallint[])"""
_UPSTREAM: Final = """
select upstream, dependent, condition from taskmq.failed_dependency where dependent = any($1::uuid[])"""
_AGAIN: Final = {
    "state": "11",
    "version": "version + 1",
    "expires": "case when expires > taskmq.now_ms() then expires end",
    "cancel_requested": "null",
    **dict.fromkeys(("error_type", "error_message", "traceback"), "null"),
}
_REATTACH: Final = f"""
with gone as (delete from taskmq.job_history where id = any($1::uuid[]) and state in (9, 10) returning *),
u as (insert into taskmq.job ({JOB_COLUMNS})
      select {", ".join(_AGAIN.get(name, name) for name in JOB_COLUMNS.split(", "))} from gone returning id, version),
l as (delete from taskmq.failed_dependency where dependent = any($1::uuid[]))
insert into taskmq.event (id, at, number, version, kind, state, actor, note)
select id, taskmq.now_ms(), nextval('taskmq.event_number'), version, 6, 11, $2, $3 from u"""


async def forget_failed_upstream(connection: Connection, job_id: str) -> None:
    """Forget what ended a job, because it runs again, or another job repeats it."""
    await connection.execute(_FORGET, job_id)


async def reattach_dependents(
    connection: Connection, update: JobUpdate, runs: str, *, tenant: int, state: JobState
) -> int:
    """Let the dependents that a job ended wait for the job `runs`; return how many wait now.

    Args:
        update: the retry of the job that ended.
        tenant: number of its tenant.
        state: the state in which it ended.
    """
    conditions = [CONDITION_CODES[each] for each in unmet_conditions(state)]
    found = await connection.fetch(_FIRST_DEPENDENTS, [update.id], conditions)
    note = reattachment_note(update.note, update.id, runs)
    waiting = await _lock(connection, [str(row["dependent"]) for row in found])
    if waiting and runs != update.id:
        await connection.execute(_RENAME, update.id, runs, waiting, conditions)
    count = 0
    while waiting:
        jobs = await _select_reattached(connection, waiting, tenant)
        ids = list(jobs)
        await settle_ends_of(connection, ids)
        await connection.execute(_REATTACH, ids, update.by, note)
        await depend(connection, list(jobs.items()))
        count += len(ids)
        found = await connection.fetch(_DEPENDENTS, ids)
        waiting = await _lock(connection, [str(row["dependent"]) for row in found])
    return count


async def _lock(connection: Connection, ids: Sequence[str]) -> list[str]:
    return [str(row["id"]) for row in await connection.fetch(_LOCK, ids)] if ids else []


async def _select_reattached(connection: Connection, ids: Sequence[str], tenant: int) -> dict[str, Unmet]:
    """Return those of these jobs whose dependencies can all be met, with the dependencies that they wait for."""
    of_job: defaultdict[str, list[JobDependency]] = defaultdict(list)
    for row in await connection.fetch(_UPSTREAM, ids):
        of_job[str(row["dependent"])].append(JobDependency(str(row["upstream"]), CONDITIONS[row["condition"]]))
    upstream = await find_upstream(connection, [each.id for found in of_job.values() for each in found])
    chosen: dict[str, Unmet] = {}
    for job_id, found in of_job.items():
        if upstream.refusal(found, tenant) is not None:
            continue
        unmet = upstream.unmet(found)
        if all(state not in TERMINAL for _, state in unmet):
            chosen[job_id] = unmet
    return chosen
