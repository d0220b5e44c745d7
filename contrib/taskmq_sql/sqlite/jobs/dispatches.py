"""Dispatches."""

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import (
    DispatchBatch,
    DispatchedJob,
    HistoryEntry,
    JobRecord,
    Lane,
    LaneHead,
    Pick,
    ReturnedJob,
    partition_key,
)
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES
from taskmq_sql.jobs.values import chances, owner_in
from taskmq_sql.sqlite.file.sets import in_each, run_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import UNDER_WAY, id_bytes, id_text
from taskmq_sql.sqlite.jobs.live_jobs import load, note_ends, note_events, save
from taskmq_sql.sqlite.jobs.records import LISTED, record

_DISPATCHED: Final = CODES[JobState.DISPATCHED]
_EXPIRED_REASON: Final = "the job expired before it started"

_HELD: Final = "SELECT 1 FROM lease WHERE key = ? AND epoch = ? AND holder IS NOT NULL"
# Jumps from lane to lane, with one index probe each: the jobs of a lane are not read.
_LANES: Final = """
    WITH RECURSIVE lane (queue, priority, tenant) AS (
        SELECT * FROM (SELECT queue, priority, tenant FROM ready ORDER BY queue, priority, tenant LIMIT 1)
        UNION ALL
        SELECT
            (SELECT r.queue FROM ready AS r WHERE (r.queue, r.priority, r.tenant) >
                (lane.queue, lane.priority, lane.tenant) ORDER BY r.queue, r.priority, r.tenant LIMIT 1),
            (SELECT r.priority FROM ready AS r WHERE (r.queue, r.priority, r.tenant) >
                (lane.queue, lane.priority, lane.tenant) ORDER BY r.queue, r.priority, r.tenant LIMIT 1),
            (SELECT r.tenant FROM ready AS r WHERE (r.queue, r.priority, r.tenant) >
                (lane.queue, lane.priority, lane.tenant) ORDER BY r.queue, r.priority, r.tenant LIMIT 1)
        FROM lane WHERE lane.queue IS NOT NULL
    )
    SELECT queue, priority, tenant FROM lane WHERE queue IS NOT NULL
"""
_HEAD: Final = """
    SELECT r.due, j.expires FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? ORDER BY r.due, r.id LIMIT 1
"""
_FIRST: Final = """
    SELECT j.id, r.due, j.key, j.task, j.attempt, j.token, j.expires, j.body, j.first_started, j.outages, j.detail
    FROM ready AS r CROSS JOIN job AS j ON j.id = r.id
    WHERE r.queue = ? AND r.priority = ? AND r.tenant = ? ORDER BY r.due, r.id LIMIT ?
"""
# Deletes exactly the rows read above: no other process writes in between.
_TAKE: Final = "DELETE FROM ready WHERE queue = ? AND priority = ? AND tenant = ? AND (due, id) <= (?, ?)"
_ONE: Final = """
    SELECT j.id, r.due, j.key, j.task, j.attempt, j.token, j.expires, j.body, j.first_started, j.outages, j.detail,
        r.queue, r.priority, r.tenant
    FROM job AS j CROSS JOIN ready AS r ON r.queue = j.queue AND r.priority = j.priority AND r.tenant = j.tenant
        AND r.due = j.due AND r.id = j.id
    WHERE j.id = ?
"""
_TAKE_ONE: Final = "DELETE FROM ready WHERE queue = ? AND priority = ? AND tenant = ? AND due = ? AND id = ?"
_DISPATCH: Final = """
    UPDATE job SET state = v.column2, version = version + 1, token = v.column3, dispatched = v.column4,
        started = NULL, crashes = NULL
    FROM (VALUES @rows) AS v WHERE job.id = v.column1
"""
_BATCHES: Final = "SELECT id, confirmed, jobs FROM dispatch_batch WHERE partition = ? AND epoch < ? ORDER BY id"
_WHOLE: Final = """
    SELECT id, tenant, queue, priority, key, task, attempt, token, expires, body, state, due, first_started, outages,
        crashes, detail
    FROM job WHERE id IN (@values)
"""
_UNDER_WAY_RECORDS: Final = f"SELECT {LISTED} FROM job WHERE id IN (@values)"
_TOKENS: Final = "SELECT id, token, state FROM job WHERE id IN (@values)"
_PAIR: Final = struct.Struct(">16sq")


def holds(transaction: Transaction, partition: int, epoch: int) -> bool:
    """Whether the partition's lease still has this epoch."""
    return transaction.connection.execute(_HELD, (partition_key(partition), epoch)).fetchone() is not None


def lanes(transaction: Transaction) -> list[Lane]:
    """Return the lanes of all queues that have ready jobs."""
    name, connection = transaction.names.name, transaction.connection
    return [
        Lane(name(connection, queue), priority, name(connection, tenant))
        for queue, priority, tenant in connection.execute(_LANES).fetchall()
    ]


def heads(transaction: Transaction, queues: Sequence[str]) -> dict[Lane, LaneHead]:
    """Return the first job of each lane of these queues; some policies need it."""
    found: dict[Lane, LaneHead] = {}
    number, connection = transaction.names.id, transaction.connection
    for lane in lanes(transaction):
        if lane.queue in queues:
            key = (number(connection, lane.queue), lane.priority, number(connection, lane.tenant))
            due, expires = connection.execute(_HEAD, key).fetchone()
            found[lane] = LaneHead(due, expires)
    return found


def dispatch(transaction: Transaction, partition: int, epoch: int, picks: Sequence[Pick]) -> DispatchBatch | None:
    """Dispatch the jobs and record the batch; return None if there were none."""
    if not holds(transaction, partition, epoch):
        return None
    counts: defaultdict[Lane, int] = defaultdict(int)
    for pick in picks:
        counts[pick.lane] += pick.count
    chosen = _Dispatch(transaction)
    for lane, count in counts.items():
        chosen.add_lane(lane, count)
    return _record_batch(transaction, partition, epoch, chosen)


def dispatch_named(
    transaction: Transaction, partition: int, epoch: int, nodes: Mapping[bytes, str]
) -> DispatchBatch | None:
    """Dispatch jobs named one by one, each with its node; skip those that are not ready."""
    chosen = _Dispatch(transaction)
    for job, node in nodes.items():
        chosen.add_job(job, node)
    return _record_batch(transaction, partition, epoch, chosen)


def _record_batch(transaction: Transaction, partition: int, epoch: int, chosen: "_Dispatch") -> DispatchBatch | None:
    chosen.write()
    if not chosen.jobs:
        return None
    number = _write_batch(transaction, partition, epoch, [(job_id, token) for job_id, _, token, _ in chosen.rows])
    return DispatchBatch(number, False, chosen.jobs, len(chosen.expired))


def _write_batch(transaction: Transaction, partition: int, epoch: int, jobs: Iterable[tuple[bytes, int]]) -> int:
    packed = b"".join(_PAIR.pack(*job) for job in jobs)
    cursor = transaction.connection.execute(
        "INSERT INTO dispatch_batch (partition, epoch, jobs) VALUES (?, ?, ?)", (partition, epoch, packed)
    )
    return cursor.lastrowid or 0


def dispatch_again(
    transaction: Transaction, partition: int, epoch: int, jobs: Sequence[ReturnedJob]
) -> DispatchBatch | None:
    """Write another batch with jobs under way, which keep their tokens; jobs to be cancelled are left out."""
    if not holds(transaction, partition, epoch):
        return None
    returned = {job_id: job for job in jobs if (job_id := id_bytes(job.id)) is not None}
    found = [
        job
        for job in load(transaction, list(returned)).values()
        if job.state in UNDER_WAY and job.token == returned[job.id].token and job.cancel_requested is None
    ]
    if not found:
        return None
    events: list[tuple[bytes, HistoryEntry]] = []
    for job in found:
        one, had_begun, began = returned[job.id], job.state != _DISPATCHED, job.started
        job.step(JobState.DISPATCHED, now=transaction.now)
        job.started, job.crashes = None, (job.crashes or 0) + one.crashes
        if had_begun or one.crashes:
            worker = "" if job.worker is None else transaction.names.name(transaction.connection, job.worker)
            entry = HistoryEntry(
                version=job.version,
                at=transaction.now,
                kind="interrupted",
                state=JobState.DISPATCHED,
                by=worker,
                note=one.reason,
                started=began,
            )
            events.append((job.id, entry))
    save(transaction, found)
    note_events(transaction, events)
    number = _write_batch(transaction, partition, epoch, [(job.id, job.token) for job in found])
    rows = select_each(transaction.connection, _WHOLE, [job.id for job in found])
    return DispatchBatch(number, False, [_job(transaction, row) for row in rows])


def confirm(transaction: Transaction, batches: Sequence[int]) -> None:
    """Record that the broker confirmed these batches."""
    in_each(transaction.connection, "UPDATE dispatch_batch SET confirmed = 1 WHERE id IN (@values)", batches)


def forget(transaction: Transaction, batches: Sequence[int]) -> None:
    """Delete batches that all their jobs have left."""
    in_each(transaction.connection, "DELETE FROM dispatch_batch WHERE id IN (@values)", batches)


def take_over(transaction: Transaction, partition: int, epoch: int) -> list[DispatchBatch]:
    """Return the batches of earlier holders of the partition that still have jobs in flight."""
    if not holds(transaction, partition, epoch):
        return []
    connection = transaction.connection
    left: list[DispatchBatch] = []
    empty: list[int] = []
    batches = [
        (number, confirmed, dict(_PAIR.iter_unpack(packed)))
        for number, confirmed, packed in connection.execute(_BATCHES, (partition, epoch)).fetchall()
    ]
    # A job that was dispatched again is in several batches, and counts in the last one.
    last = {job: number for number, _, tokens in batches for job in tokens.items()}
    for number, confirmed, packed in batches:
        tokens = {job_id: token for job_id, token in packed.items() if last[job_id, token] == number}
        rows = select_each(connection, _WHOLE, list(tokens))
        jobs = [_job(transaction, row) for row in rows if row[7] == tokens[row[0]] and row[10] in UNDER_WAY]
        if jobs:
            left.append(DispatchBatch(number, bool(confirmed), jobs))
        else:
            empty.append(number)
    forget(transaction, empty)
    connection.execute(
        "UPDATE dispatch_batch SET epoch = ? WHERE partition = ? AND epoch < ?", (epoch, partition, epoch)
    )
    return left


def in_flight(transaction: Transaction, partition: int, dispatched_before: int) -> list[JobRecord]:
    """Return the partition's jobs under way that were dispatched before an instant, without their bodies."""
    connection = transaction.connection
    tokens: dict[bytes, int] = {}
    for (packed,) in connection.execute(
        "SELECT jobs FROM dispatch_batch WHERE partition = ?", (partition,)
    ).fetchall():
        # A job that was dispatched twice is in two batches; the later dispatch has the larger token.
        for job_id, token in _PAIR.iter_unpack(packed):
            tokens[job_id] = max(token, tokens.get(job_id, 0))
    found = [record(transaction, row) for row in select_each(connection, _UNDER_WAY_RECORDS, sorted(tokens))]
    return [
        job
        for job in found
        if CODES[job.state] in UNDER_WAY and job.dispatched is not None and job.dispatched < dispatched_before
    ]


def under_way(transaction: Transaction) -> list[bytes]:
    """Return the ids of all jobs under way."""
    tokens: dict[bytes, int] = {}
    for (packed,) in transaction.connection.execute("SELECT jobs FROM dispatch_batch").fetchall():
        for job_id, token in _PAIR.iter_unpack(packed):
            tokens[job_id] = max(token, tokens.get(job_id, 0))
    rows = select_each(transaction.connection, _TOKENS, sorted(tokens))
    return [job_id for job_id, token, state in rows if token == tokens[job_id] and state in UNDER_WAY]


class _Dispatch:
    """Collects the jobs of one dispatch.

    Attributes:
        jobs: the dispatched jobs.
        rows: their new values: id, state, token, instant.
        expired: ids of the jobs that end instead.
    """

    def __init__(self, transaction: Transaction) -> None:
        self.jobs: list[DispatchedJob] = []
        self.rows: list[tuple[bytes, int, int, int]] = []
        self.expired: list[bytes] = []
        self._transaction = transaction

    def add_lane(self, lane: Lane, count: int) -> None:
        """Add the first jobs of a lane, up to `count`."""
        connection, names = self._transaction.connection, self._transaction.names
        queue, tenant = names.find(connection, lane.queue), names.find(connection, lane.tenant)
        if queue is None or tenant is None or count <= 0:
            return
        found = connection.execute(_FIRST, (queue, lane.priority, tenant, count)).fetchall()
        if not found:
            return
        connection.execute(_TAKE, (queue, lane.priority, tenant, found[-1][1], found[-1][0]))
        for row, number in zip(found, chances(len(found)), strict=True):
            self._add(lane, row, number)

    def add_job(self, job: bytes, node: str) -> None:
        """Add one job if it is ready."""
        connection, names = self._transaction.connection, self._transaction.names
        row = connection.execute(_ONE, (job,)).fetchone()
        if row is None:
            return
        *found, queue, priority, tenant = row
        connection.execute(_TAKE_ONE, (queue, priority, tenant, found[1], job))
        lane = Lane(names.name(connection, queue), priority, names.name(connection, tenant))
        self._add(lane, found, chances(1)[0], node)

    def write(self) -> None:
        """Write the dispatched jobs, and end the expired ones."""
        run_each(self._transaction.connection, _DISPATCH, self.rows)
        expired = load(self._transaction, self.expired)
        for job in expired.values():
            job.step(JobState.EXPIRED, now=self._transaction.now)
            job.give_reason(_EXPIRED_REASON)
        save(self._transaction, expired.values())
        note_ends(self._transaction, expired.values())

    def _add(self, lane: Lane, row: Sequence[Any], number: int, node: str = "") -> None:
        job_id, due, key, task, attempt, last_token, expires, body, first_started, outages, detail = row
        now = self._transaction.now
        if expires is not None and expires <= now:
            self.expired.append(job_id)
            return
        token = (last_token >> 32) + 1 << 32 | number
        self.rows.append((job_id, _DISPATCHED, token, now))
        self.jobs.append(
            DispatchedJob(
                id=id_text(job_id),
                key=key,
                tenant=lane.tenant,
                task=self._transaction.names.name(self._transaction.connection, task),
                queue=lane.queue,
                priority=lane.priority,
                attempt=attempt,
                token=token,
                expires=expires,
                body=body,
                node=node,
                due=due if first_started is None else None,
                outages=outages or 0,
                owner=owner_in(detail),
            )
        )


def _job(transaction: Transaction, row: Sequence[Any]) -> DispatchedJob:
    job_id, tenant, queue, priority, key, task, attempt, token, expires, body, _, due, *rest = row
    first_started, outages, crashes, detail = rest
    name, connection = transaction.names.name, transaction.connection
    return DispatchedJob(
        id=id_text(job_id),
        key=key,
        tenant=name(connection, tenant),
        task=name(connection, task),
        queue=name(connection, queue),
        priority=priority,
        attempt=attempt,
        token=token,
        expires=expires,
        body=body,
        due=due if first_started is None else None,
        outages=outages or 0,
        owner=owner_in(detail),
        crashes=crashes,
    )
