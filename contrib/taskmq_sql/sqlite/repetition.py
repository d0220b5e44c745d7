"""Ended jobs that run again, as a new job or under the same id."""

from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from taskmq.contracts.jobs import HistoryEntry, JobRecord, JobUpdate, NewJob, Submitted, count_reattached
from taskmq.model.states import RESUMABLE, TERMINAL, JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes
from taskmq_sql.sqlite.jobs.dependencies import Upstream, settle_ends_of
from taskmq_sql.sqlite.jobs.dependents import forget_failed_upstream, reattach_dependents
from taskmq_sql.sqlite.jobs.records import get
from taskmq_sql.sqlite.jobs.submissions import submit
from taskmq_sql.sqlite.jobs.updates import record_change

_AS_IT_WAS: Final = "SELECT tenant FROM job_history WHERE id = ? AND state = ? AND version = ?"
_REPEATED: Final = "UPDATE job_history SET retried_as = ?, version = version + 1 WHERE id = ?"
_ATTEMPT: Final = """
    INSERT INTO attempt (id, attempt, state, started, ended, worker, error_type, error, traceback, processor_ms,
        peak_memory)
    SELECT id, attempt, state, started, finished, worker, error_type, error, traceback, processor_ms, peak_memory
    FROM job_history
    WHERE id = ? AND dispatched IS NOT NULL
"""
_RESUME: Final = f"""
    INSERT INTO job (id, state, version, attempt, token, tenant, queue, task, priority, due, dispatched, started,
        worker, error_type, error, traceback, scheduled, first_started, key, detail, body,
        has_dependents)
    SELECT id, ?1, version + 1, attempt + (dispatched IS NOT NULL), token, tenant, queue, task, priority,
        coalesce(?2, due), NULL, started, worker, iif(state = {CODES[JobState.FAILED]}, error_type, NULL),
        iif(state = {CODES[JobState.FAILED]}, error, NULL), iif(state = {CODES[JobState.FAILED]}, traceback, NULL),
        iif(?2 IS NULL, scheduled, coalesce(scheduled, due)), first_started, key, detail, coalesce(?3, body),
        nullif(EXISTS (SELECT 1 FROM dependency WHERE upstream = ?4), 0)
    FROM job_history WHERE id = ?4
"""
_READY: Final = """
    INSERT INTO ready (queue, priority, tenant, due, id) SELECT queue, priority, tenant, due, id FROM job WHERE id = ?
"""


def retry(transaction: Transaction, job: NewJob, change: JobUpdate) -> Submitted | None:
    """Submit a job that repeats an ended one, and record its id there."""
    ended_id = id_bytes(change.id)
    if _tenant(transaction, change) is None or ended_id is None:
        return None
    (answer,) = submit(transaction, [job])
    if answer.is_new:
        transaction.connection.execute(_REPEATED, (id_bytes(job.id), ended_id))
        reattached = _reattach(transaction, change, ended_id, job.id)
        _record(transaction, change, change.before, reattached)
        answer = replace(answer, reattached=reattached)
    return answer


def resume(transaction: Transaction, change: JobUpdate) -> JobRecord | None:
    """Resume an ended job; return the new record, None if the job does not match the change."""
    if change.kind != "retry" or change.after is not JobState.QUEUED or change.before not in RESUMABLE:
        return None
    upstream = Upstream(transaction, change.depends_on)
    tenant, job_id = _tenant(transaction, change), id_bytes(change.id)
    if tenant is None or job_id is None or upstream.refusal(tenant) is not None:
        return None
    state = JobState.WAITING if upstream.add(job_id) else JobState.QUEUED
    due = None if change.due is UNSET else change.due
    body = None if change.body is UNSET else change.body
    connection = transaction.connection
    settle_ends_of(transaction, [job_id])
    connection.execute(_ATTEMPT, (job_id,))
    connection.execute(_RESUME, (CODES[state], due, body, job_id))
    connection.execute("DELETE FROM job_history WHERE id = ?", (job_id,))
    connection.execute("DELETE FROM claim_line WHERE id = ?", (job_id,))
    if state is JobState.QUEUED:
        connection.execute(_READY, (job_id,))
    reattached = _reattach(transaction, change, job_id, change.id)
    _record(transaction, change, state, reattached)
    record = get(transaction, change.id)
    return None if record is None else replace(record, reattached=reattached)


def _tenant(transaction: Transaction, change: JobUpdate) -> int | None:
    """Return the number of the ended job's tenant; None if the job does not match the change."""
    if change.before not in TERMINAL:
        return None
    given = (id_bytes(change.id), CODES[change.before], change.version)
    row = transaction.connection.execute(_AS_IT_WAS, given).fetchone()
    return None if row is None else int(row[0])


def _reattach(transaction: Transaction, change: JobUpdate, ended: bytes, runs: str) -> int:
    """Let the dependents that the job ended wait for the job `runs`; return how many wait now."""
    settle_ends_of(transaction, [ended])
    forget_failed_upstream(transaction, ended)
    return reattach_dependents(transaction, change, runs)


def _record(transaction: Transaction, change: JobUpdate, state: JobState, reattached: int) -> None:
    event = HistoryEntry(
        version=change.version + 1,
        at=transaction.now,
        kind=change.kind,
        state=state,
        by=change.by,
        note=change.note,
    )
    audit = None if change.audit is None else count_reattached(change.audit, reattached)
    record_change(transaction, replace(change, audit=audit), event)
