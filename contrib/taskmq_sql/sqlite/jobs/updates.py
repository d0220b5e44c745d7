"""Changes of single jobs by operators, and of timed jobs by the scheduler."""

from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.contracts.jobs import DueJob, HistoryEntry, JobRecord, JobUpdate, Lane
from taskmq.model.states import JobState, can_follow
from taskmq.model.units import storable
from taskmq_sql.identity import note
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.sqlite.file.sets import select_among
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text
from taskmq_sql.sqlite.jobs.dependencies import unmet
from taskmq_sql.sqlite.jobs.dispatches import holds
from taskmq_sql.sqlite.jobs.live_jobs import LiveJob, load, note_events, save
from taskmq_sql.sqlite.jobs.records import get
from taskmq_sql.sqlite.runner import drive

_SHARDS: Final = 64
_WAITS: Final = frozenset({CODES[JobState.SCHEDULED], CODES[JobState.RETRYING]})
_WAITS_FOR_OTHERS: Final = frozenset({JobState.WAITING, JobState.HELD})
_RUNS: Final = frozenset({JobState.SCHEDULED, JobState.QUEUED})
_DUE_SHARDS: Final = """
    SELECT column1 FROM (VALUES @rows) WHERE EXISTS (SELECT 1 FROM timer WHERE shard = column1 AND due < ?)
"""
_DUE: Final = "SELECT due, id, shard FROM timer WHERE shard = ? AND due < ? ORDER BY due, id LIMIT ?"


def update(transaction: Transaction, change: JobUpdate) -> JobRecord | None:
    """Change one live job and record the event; return the new record, None if the job does not match the change."""
    job_id = id_bytes(change.id)
    job = None if job_id is None else load(transaction, [job_id]).get(job_id)
    if job is None or STATES[job.state] is not change.before or job.version != change.version:
        return None
    if change.after is not change.before and not can_follow(change.before, change.after):
        return None
    if change.before in _WAITS_FOR_OTHERS and change.after in _RUNS and unmet(transaction, change.id, 1):
        change = msgspec.structs.replace(change, after=JobState.WAITING)
    job.step(change.after, now=transaction.now)
    _set_fields(transaction, job, change)
    save(transaction, [job])
    event = HistoryEntry(
        version=job.version,
        at=transaction.now,
        kind=change.kind,
        state=change.after,
        by=change.by,
        note=change.note,
    )
    record_change(transaction, change, event)
    return get(transaction, change.id)


def due(transaction: Transaction, shards: Sequence[int], until: int, limit: int) -> list[DueJob]:
    """Return up to `limit` timed jobs due before `until` (ms), earliest first."""
    found = [
        DueJob(at, id_text(job_id), shard)
        for each in select_among(transaction.connection, _DUE_SHARDS, shards, until)
        for at, job_id, shard in transaction.connection.execute(_DUE, (each, until, limit)).fetchall()
    ]
    return sorted(found)[:limit]


def fire(transaction: Transaction, partition: int, epoch: int, jobs: Sequence[DueJob]) -> set[Lane]:
    """Queue the due jobs that still wait for their time; return the lanes that received any."""
    if not holds(transaction, partition, epoch):
        return set()
    times = {job_id: job.due for job in jobs if (job_id := id_bytes(job.id)) is not None}
    fired: list[LiveJob] = []
    for job in load(transaction, list(times)).values():
        if job.state in _WAITS and job.due == times[job.id]:
            job.step(JobState.QUEUED, now=transaction.now)
            fired.append(job)
    save(transaction, fired)
    name, connection = transaction.names.name, transaction.connection
    lanes = {(job.queue, job.priority, job.tenant) for job in fired}
    return {Lane(name(connection, queue), priority, name(connection, tenant)) for queue, priority, tenant in lanes}


def record_change(transaction: Transaction, change: JobUpdate, event: HistoryEntry) -> None:
    """Record a change in the job's history, and in the audit if the change has an entry."""
    job_id = id_bytes(change.id)
    assert job_id is not None
    note_events(transaction, [(job_id, event)])
    if change.audit is not None:
        drive(transaction, note([change.audit]))


def _set_fields(transaction: Transaction, job: LiveJob, change: JobUpdate) -> None:
    if change.due is not msgspec.UNSET:
        if change.kind == "change":
            job.due, job.scheduled = change.due, None
        else:
            job.put_off(change.due)
    if change.expires is not msgspec.UNSET:
        job.expires = change.expires
    if change.priority is not msgspec.UNSET:
        job.priority = change.priority
    if change.queue is not msgspec.UNSET:
        queue = transaction.names.id(transaction.connection, change.queue)
        if queue != job.queue:
            transaction.connection.execute("DELETE FROM claim_line WHERE id = ?", (job.id,))
        job.queue = queue
    if change.cancel_requested is not msgspec.UNSET:
        job.cancel_requested = storable(change.cancel_requested)
    if change.error is not msgspec.UNSET:
        job.fail_with(change.error)
    if change.body is not msgspec.UNSET:
        transaction.connection.execute("UPDATE job SET body = ? WHERE id = ?", (change.body, job.id))
