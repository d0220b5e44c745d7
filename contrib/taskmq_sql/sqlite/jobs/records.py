"""Records of jobs, live or ended, with or without bodies and results."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.jobs import AttemptRecord, HistoryEntry, JobAction, JobDetail, JobRecord
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import STATES
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text

_COMMON: Final = """
    id, tenant, key, task, queue, priority, state, version, attempt, token, due, expires, dispatched, started, worker,
    cancel_requested, error_type, error, traceback, scheduled, detail, first_started"""

LISTED: Final = f"{_COMMON}, NULL, NULL, NULL, NULL, NULL, x'', NULL"
"""Columns of a live job in a list."""

LISTED_ENDED: Final = f"{_COMMON}, retried_as, finished, NULL, NULL, NULL, x'', NULL"
"""Columns of a job of `job_history` in a list."""

_WHOLE: Final = f"SELECT {_COMMON}, NULL, NULL, NULL, NULL, NULL, body, NULL FROM job WHERE id = ?"
_WHOLE_ENDED: Final = f"""
    SELECT {_COMMON}, retried_as, finished, processor_ms, peak_memory, content_type, body, result FROM job_history
    WHERE id = ?
"""
_ACTIONS: Final = """
    WITH e AS MATERIALIZED (
        SELECT rowid AS number, * FROM event INDEXED BY event_at WHERE at >= ? ORDER BY at DESC, rowid DESC LIMIT ?
    )
    SELECT e.id, coalesce(j.key, h.key), coalesce(j.tenant, h.tenant), coalesce(j.task, h.task),
        coalesce(j.queue, h.queue), e.version, e.at, e.kind, e.state, e.by, e.note, e.started
    FROM e LEFT JOIN job AS j ON j.id = e.id LEFT JOIN job_history AS h ON h.id = e.id
    WHERE j.id IS NOT NULL OR h.id IS NOT NULL
    ORDER BY e.at, e.number
"""
_ATTEMPTS: Final = """
    SELECT attempt, state, started, ended, worker, error_type, error, traceback, processor_ms, peak_memory
    FROM attempt WHERE id = ? ORDER BY rowid
"""

_details: Final = msgspec.json.Decoder(JobDetail)


def get(transaction: Transaction, job_id: str) -> JobRecord | None:
    """Return the job, live or ended; None if there is none."""
    key = id_bytes(job_id)
    for statement in (_WHOLE, _WHOLE_ENDED):
        for row in transaction.connection.execute(statement, (key,)).fetchall():
            return record(transaction, row)
    return None


def record(transaction: Transaction, row: Sequence[Any]) -> JobRecord:
    """Convert a row that has the columns of a list, or body and result."""
    (
        job_id, tenant, key, task, queue, priority, state, version, attempt, token, due, expires, dispatched, started,
        worker, cancel_requested, error_type, error, traceback, scheduled, detail, first_started, retried_as,
        finished, processor_ms, peak_memory, content_type, body, result,
    ) = row  # fmt: skip
    return JobRecord(
        id=id_text(job_id),
        tenant=_name(transaction, tenant),
        key=key,
        task=_name(transaction, task),
        queue=_name(transaction, queue),
        priority=priority,
        state=STATES[state],
        version=version,
        attempt=attempt,
        token=token,
        due=due,
        scheduled=scheduled,
        # The store's ids contain it.
        submitted=int.from_bytes(job_id[:6]),
        expires=expires,
        dispatched=dispatched,
        started=started,
        finished=finished,
        first_started=first_started,
        worker=_name(transaction, worker),
        cancel_requested=cancel_requested,
        body=body,
        content_type=content_type or "",
        result=result or b"",
        error=_error(error_type, error, traceback),
        detail=None if detail is None else _details.decode(detail),
        retried_as="" if retried_as is None else id_text(retried_as),
        processor_ms=processor_ms,
        peak_memory=peak_memory,
    )


def events(transaction: Transaction, job_id: str) -> list[HistoryEntry]:
    """Return the unusual events of the job, earliest first."""
    rows = transaction.connection.execute(
        "SELECT version, at, kind, state, by, note, started FROM event WHERE id = ? ORDER BY rowid",
        (id_bytes(job_id),),
    ).fetchall()
    return [_entry(row) for row in rows]


def actions(transaction: Transaction, since: int, limit: int) -> list[JobAction]:
    """Return the last entries of all jobs' histories since an instant (ms)."""
    return [
        JobAction(
            job_id=id_text(job_id),
            key=key,
            tenant=_name(transaction, tenant),
            task=_name(transaction, task),
            queue=_name(transaction, queue),
            entry=_entry(entry),
        )
        for job_id, key, tenant, task, queue, *entry in transaction.connection.execute(
            _ACTIONS, (since, limit)
        ).fetchall()
    ]


def _entry(row: Sequence[Any]) -> HistoryEntry:
    version, at, kind, state, by, note, started = row
    return HistoryEntry(version=version, at=at, kind=kind, state=STATES[state], by=by, note=note, started=started)


def attempts(transaction: Transaction, job_id: str) -> list[AttemptRecord]:
    """Return the attempts that did not end the job, earliest first."""
    rows = transaction.connection.execute(_ATTEMPTS, (id_bytes(job_id),)).fetchall()
    return [
        AttemptRecord(
            attempt=attempt,
            started=started,
            ended=ended,
            worker=_name(transaction, worker),
            error=_error(error_type, error, traceback),
            state=JobState.FAILED if state is None else STATES[state],
            processor_ms=processor_ms,
            peak_memory=peak_memory,
        )
        for attempt, state, started, ended, worker, error_type, error, traceback, processor_ms, peak_memory in rows
    ]


def _name(transaction: Transaction, number: int | None) -> str:
    return "" if number is None else transaction.names.name(transaction.connection, number)


def _error(type_name: str | None, message: str | None, traceback: str | None) -> ErrorRecord | None:
    if type_name is None:
        return None
    return ErrorRecord(type_name=type_name, message=message or "", traceback=traceback or "")
