"""Live jobs within a transaction: read together, changed one by one, written together."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from taskmq.contracts.jobs import HistoryEntry
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.units import storable
from taskmq_sql.jobs.codes import CODES, STATES
from taskmq_sql.sqlite.file.sets import in_each, run_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import ENDED, shard_of

_QUEUED: Final = CODES[JobState.QUEUED]
_WAITS: Final = frozenset({CODES[JobState.SCHEDULED], CODES[JobState.RETRYING]})
_WAITS_FOR_OTHERS: Final = frozenset({CODES[JobState.WAITING], CODES[JobState.HELD]})

_LOAD: Final = """
    SELECT id, state, version, attempt, token, tenant, queue, priority, due, expires, dispatched, started, worker,
        cancel_requested, error_type, error, traceback, scheduled, first_started, outages, crashes, has_dependents,
        run
    FROM job WHERE id IN (@values)
"""
_CHANGE: Final = """
    UPDATE job SET state = v.column2, version = v.column3, attempt = v.column4, token = v.column5, queue = v.column6,
        priority = v.column7, due = v.column8, expires = v.column9, dispatched = v.column10, started = v.column11,
        worker = v.column12, cancel_requested = v.column13, error_type = v.column14, error = v.column15,
        traceback = v.column16, scheduled = v.column17, first_started = v.column18, outages = v.column19,
        crashes = v.column20
    FROM (VALUES @rows) AS v WHERE job.id = v.column1
"""
_END: Final = """
    INSERT INTO job_history (id, state, version, attempt, token, queue, priority, due, expires, dispatched, started,
        worker, cancel_requested, error_type, error, traceback, scheduled, first_started, finished, content_type,
        result, processor_ms, peak_memory, tenant, task, key, detail, body)
    SELECT v.*, j.tenant, j.task, j.key, j.detail, j.body
    FROM (VALUES @rows) AS v CROSS JOIN job AS j ON j.id = v.column1
"""
_TELL: Final = """
    INSERT INTO run_inbox (run, job, step, child, state, content_type, value, error)
    SELECT j.run, j.id, j.step, j.child, v.column2, v.column3, v.column4, v.column5
    FROM (VALUES @rows) AS v CROSS JOIN job AS j ON j.id = v.column1
"""
_NOTE: Final = "INSERT INTO event (id, version, at, kind, state, by, note, started) VALUES @rows"


class LiveJob(msgspec.Struct):
    """A row of `job`, without the columns that updates keep; times are ms since the epoch.

    Attributes:
        outages: number of outages that interrupted runs of the present attempt.
        crashes: number of workers that died while they had its dispatch; None: its message never came back.
        has_dependents: other jobs wait for its end, or did.
        run: the run that it belongs to.
        finished, content_type, result, processor_ms, peak_memory: of the end, once it has ended.
    """

    id: bytes
    state: int
    version: int
    attempt: int
    token: int
    tenant: int
    queue: int
    priority: int
    due: int
    expires: int | None
    dispatched: int | None
    started: int | None
    worker: int | None
    cancel_requested: str | None
    error_type: str | None
    error: str | None
    traceback: str | None
    scheduled: int | None
    first_started: int | None
    outages: int | None
    crashes: int | None
    has_dependents: int | None
    run: bytes | None
    before: Sequence[Any] = ()
    finished: int | None = None
    content_type: str | None = None
    result: bytes | None = None
    processor_ms: int | None = None
    peak_memory: int | None = None

    def step(self, after: JobState, *, now: int) -> None:
        """Enter this state and increment the version; an end happens now."""
        self.state = CODES[after]
        self.version += 1
        if self.state in ENDED:
            self.finished = now

    def put_off(self, due: int) -> None:
        """Move the job to another time; the time it was first scheduled for is kept."""
        self.scheduled = self.due if self.scheduled is None else self.scheduled
        self.due = due

    def fail_with(self, error: ErrorRecord | None) -> None:
        """Set or clear the error."""
        if error is None:
            self.error_type = self.error = self.traceback = None
        else:
            self.error_type = storable(error.type_name)
            self.error = storable(error.message)
            self.traceback = storable(error.traceback)

    def give_reason(self, text: str) -> None:
        """Set the reason of an end that is not the task's failure."""
        self.error_type, self.error, self.traceback = "", storable(text), ""


def load(transaction: Transaction, ids: Sequence[bytes]) -> dict[bytes, LiveJob]:
    """Load the jobs that are live."""
    rows = select_each(transaction.connection, _LOAD, ids)
    found: dict[bytes, LiveJob] = {}
    for row in rows:
        found[row[0]] = job = LiveJob(*row)
        job.before = row
    return found


def save(transaction: Transaction, jobs: Iterable[LiveJob]) -> None:
    """Write the changed jobs, and keep `ready`, `gated`, `timer` and the history in step."""
    changed = [job for job in jobs if job.version != job.before[2]]
    if not changed:
        return
    _delete_entries(transaction, changed)
    live = [job for job in changed if job.state not in ENDED]
    ended = [job for job in changed if job.state in ENDED]
    if ended:
        run_each(transaction.connection, _END, [(*_values(job), job.first_started, *_end(job)) for job in ended])
        _tell_runs(transaction, ended)
        in_each(transaction.connection, "DELETE FROM job WHERE id IN (@values)", [job.id for job in ended])
        _settle_dependencies(transaction, ended)
    if live:
        rows = [(*_values(job), job.first_started, job.outages, job.crashes) for job in live]
        run_each(transaction.connection, _CHANGE, rows)
        _insert_entries(transaction, live)


def _settle_dependencies(transaction: Transaction, ended: Sequence[LiveJob]) -> None:
    """Record the ends for dependents, and delete the dependencies of the ended jobs."""
    marked = [(job.id, job.state) for job in ended if job.has_dependents]
    run_each(transaction.connection, "INSERT INTO upstream_end (id, state) VALUES @rows", marked)
    waited = [job.id for job in ended if job.before[1] in _WAITS_FOR_OTHERS]
    in_each(transaction.connection, "DELETE FROM dependency WHERE dependent IN (@values)", waited)


def _tell_runs(transaction: Transaction, ended: Sequence[LiveJob]) -> None:
    """Insert the ends of jobs into the inboxes of their runs."""
    rows = [
        (job.id, job.state, job.content_type, job.result, _describe_error(job))
        for job in ended
        if job.run is not None
    ]
    run_each(transaction.connection, _TELL, rows)


def _describe_error(job: LiveJob) -> str:
    reason = job.error or job.cancel_requested or ""
    return f"{job.error_type}: {reason}" if job.error_type else reason


def note_events(transaction: Transaction, events: Sequence[tuple[bytes, HistoryEntry]]) -> None:
    """Insert the events in one statement."""
    rows = [
        (
            job_id,
            event.version,
            event.at,
            event.kind,
            CODES[event.state],
            storable(event.by),
            storable(event.note),
            event.started,
        )
        for job_id, event in events
    ]
    run_each(transaction.connection, _NOTE, rows)


def note_ends(transaction: Transaction, jobs: Iterable[LiveJob]) -> None:
    """Insert events for jobs that ended without a worker's report."""
    note_events(
        transaction,
        [
            (
                job.id,
                HistoryEntry(
                    version=job.version,
                    at=transaction.now,
                    kind="ended",
                    state=STATES[job.state],
                    note=job.error or "",
                ),
            )
            for job in jobs
            if job.state in ENDED
        ],
    )


def _values(job: LiveJob) -> tuple[Any, ...]:
    return (
        job.id, job.state, job.version, job.attempt, job.token, job.queue, job.priority, job.due, job.expires,
        job.dispatched, job.started, job.worker, job.cancel_requested, job.error_type, job.error, job.traceback,
        job.scheduled,
    )  # fmt: skip


def _end(job: LiveJob) -> tuple[Any, ...]:
    return job.finished, job.content_type, job.result, job.processor_ms, job.peak_memory


def _delete_entries(transaction: Transaction, jobs: Iterable[LiveJob]) -> None:
    ready: list[tuple[Any, ...]] = []
    timers: list[tuple[Any, ...]] = []
    for job in jobs:
        before = LiveJob(*job.before)
        if before.state == _QUEUED:
            ready.append(_lane(before))
        elif before.state in _WAITS:
            timers.append(_timer(before))
    # By whole keys, one after the other: for a set of keys SQLite would scan the table.
    if ready:
        transaction.connection.executemany(
            "DELETE FROM ready WHERE queue = ? AND priority = ? AND tenant = ? AND due = ? AND id = ?", ready
        )
        in_each(transaction.connection, "DELETE FROM gated WHERE id IN (@values)", [key[-1] for key in ready])
    if timers:
        transaction.connection.executemany("DELETE FROM timer WHERE shard = ? AND due = ? AND id = ?", timers)


def _insert_entries(transaction: Transaction, jobs: Iterable[LiveJob]) -> None:
    ready: list[tuple[Any, ...]] = []
    timers: list[tuple[Any, ...]] = []
    for job in jobs:
        if job.state == _QUEUED:
            ready.append(_lane(job))
        elif job.state in _WAITS:
            timers.append(_timer(job))
    run_each(transaction.connection, "INSERT INTO ready (queue, priority, tenant, due, id) VALUES @rows", ready)
    run_each(transaction.connection, "INSERT INTO timer (shard, due, id) VALUES @rows", timers)


def _lane(job: LiveJob) -> tuple[Any, ...]:
    return job.queue, job.priority, job.tenant, job.due, job.id


def _timer(job: LiveJob) -> tuple[Any, ...]:
    return shard_of(job.id), job.due, job.id
