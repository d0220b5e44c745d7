"""Ended jobs that run again, as a new job or under the same id; each in one transaction."""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from taskmq.contracts.jobs import JobRecord, JobUpdate, NewJob, Submitted, count_reattached
from taskmq.model.envelope import submitted_at
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.states import RESUMABLE, TERMINAL, JobState
from taskmq.model.units import DAY_MS
from taskmq_sql.identity import note as note_audit
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.tables import LONGEST_BODY
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.postgres.connections import Connection, Row
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.dependencies import depend, find_upstream, settle_ends_of
from taskmq_sql.postgres.ended.dependents import forget_failed_upstream, reattach_dependents
from taskmq_sql.postgres.notes import Note, note
from taskmq_sql.postgres.records import job_records
from taskmq_sql.postgres.statements import JOB_COLUMNS
from taskmq_sql.postgres.submission import insert_within, numbers_of
from taskmq_sql.postgres.transactions import drive

# Concurrent calls wait here, and then find another version.
_LOCK: Final = """
select ended, tenant from taskmq.job_history
where id = $1 and ended >= $2 and version = $3 and state = $4::smallint for no key update"""
_MARK: Final = """
update taskmq.job_history set version = version + 1, retried_as = $3 where id = $1 and ended = $2"""
_NOW: Final = "select taskmq.now_ms()"
_COLUMNS: Final = {name: name for name in JOB_COLUMNS.split(", ")}
_AGAIN: Final = _COLUMNS | {
    "due": "coalesce($4::bigint, due)",
    "scheduled": "case when $4::bigint is null then scheduled else coalesce(scheduled, due) end",
    "expires": "null",
    # So that ending before its next dispatch does not count its last run twice.
    "dispatched": "null",
    "version": "version + 1",
    "attempt": "attempt + (dispatched is not null)::int",
    "state": "$3::smallint",
    "cancel_requested": "null",
    "body": "case when $5::boolean then $6::bytea else body end",
    **{name: f"case when state = 6 then {name} end" for name in ("error_type", "error_message", "traceback")},
}
_RESUME: Final = f"""
with gone as (delete from taskmq.job_history where id = $1 and ended = $2 returning *),
a as (insert into taskmq.attempt (id, at, state, started, ended, attempt, worker, error_type, error_message,
                                  traceback, processor_ms, peak_memory)
      select id, taskmq.now_ms(), state, started, finished, attempt, worker, error_type, error_message, traceback,
             processor_ms, peak_memory
      from gone where dispatched is not null),
u as (insert into taskmq.job ({JOB_COLUMNS}, has_dependents)
      select {", ".join(_AGAIN.values())}, nullif(exists (select from taskmq.dependency where upstream = $1), false)
      from gone returning *),
q as (insert into taskmq.ready (queue, priority, tenant, due, id)
      select queue, priority, tenant, due, id from u where state = 1),
l as (delete from taskmq.claim_line where id = $1),
n as (delete from taskmq.job_body where id = $1 and $5::boolean and $7::bytea is null),
b as (insert into taskmq.job_body (id, body) select id, $7::bytea from u where $7::bytea is not null
      on conflict (id) do update set body = excluded.body)
select {JOB_COLUMNS.removesuffix(", body")},
  coalesce(body, $7::bytea, (select body from taskmq.job_body b where b.id = u.id)) as body,
  (select detail from taskmq.job_detail d where d.id = u.id) as detail
from u"""
"""Resumes the job. It keeps its token, so reports of the earlier dispatch are superseded."""


async def retry(database: Database, job: NewJob, update: JobUpdate, *, quotas: Quotas) -> Submitted | None:
    """Implement `JobStore.retry`."""
    if not is_job_id(update.id) or update.before not in TERMINAL:
        return None
    numbers = await numbers_of(database.names, [job])

    async def work(connection: Connection) -> Submitted | None:
        if (row := await _lock_ended(connection, update)) is None:
            return None
        (answer,) = await insert_within(connection, [job], numbers, quotas)
        if answer.is_new:
            await connection.execute(_MARK, update.id, row["ended"], job.id)
            reattached = await _reattach(connection, update, job.id, tenant=row["tenant"])
            await _record_change(connection, update, update.before, reattached)
            return replace(answer, reattached=reattached)
        return answer

    return await database.changes.run("transaction", work)


async def resume(database: Database, update: JobUpdate) -> JobRecord | None:
    """Resume an ended job under its own id, as `JobStore.update` does."""
    is_meant = update.kind == "retry" and update.after is JobState.QUEUED and update.before in RESUMABLE
    if not is_meant or not is_job_id(update.id):
        return None
    due = None if update.due is UNSET else update.due
    body = None if update.body is UNSET else update.body
    is_large = body is not None and len(body) > LONGEST_BODY
    bodies = (body is not None, None if is_large else body, body if is_large else None)

    async def work(connection: Connection) -> tuple[Row | None, int] | None:
        if (row := await _lock_ended(connection, update)) is None:
            return None
        upstream = await find_upstream(connection, [each.id for each in update.depends_on])
        if upstream.refusal(update.depends_on, row["tenant"]) is not None:
            return None
        unmet = upstream.unmet(update.depends_on)
        state = JobState.WAITING if unmet else JobState.QUEUED
        await settle_ends_of(connection, [update.id])
        found = await connection.fetchrow(_RESUME, update.id, row["ended"], CODES[state], due, *bodies)
        if unmet:
            await depend(connection, [(update.id, unmet)])
        reattached = await _reattach(connection, update, update.id, tenant=row["tenant"])
        await _record_change(connection, update, state, reattached)
        return found, reattached

    answer = await database.changes.run("transaction", work)
    if answer is None:
        return None
    row, reattached = answer
    (record,) = await job_records([row], database.names)
    return replace(record, reattached=reattached)


async def _reattach(connection: Connection, update: JobUpdate, runs: str, *, tenant: int) -> int:
    """Let the dependents that the job ended wait for the job `runs`; return how many wait now."""
    await settle_ends_of(connection, [update.id])
    await forget_failed_upstream(connection, update.id)
    return await reattach_dependents(connection, update, runs, tenant=tenant, state=update.before)


async def _lock_ended(connection: Connection, update: JobUpdate) -> Row | None:
    """Lock and return the ended job's row; None if it does not match the update."""
    given = (update.version, CODES[update.before])
    earliest = submitted_at(update.id) - DAY_MS
    # The second lookup, over all days, finds an id that a clock more than a day ahead created.
    return await connection.fetchrow(_LOCK, update.id, earliest, *given) or await connection.fetchrow(
        _LOCK, update.id, 0, *given
    )


async def _record_change(connection: Connection, update: JobUpdate, state: JobState, reattached: int) -> None:
    """Record the change in the job's history, and in the audit if the update has an entry."""
    await note(connection, [Note(update.id, update.version + 1, update.kind, state, update.by, update.note)])
    if update.audit is not None:
        await drive(connection, note_audit([count_reattached(update.audit, reattached)]))
