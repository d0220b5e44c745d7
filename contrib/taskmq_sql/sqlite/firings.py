"""Firing of schedules in an SQLite file."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from taskmq.contracts.jobs import (
    SCHEDULE_SHARDS,
    DueSchedule,
    NewJob,
    ScheduleFiring,
    schedule_shard,
)
from taskmq.errors import OccurrenceConflict
from taskmq_embedded.work import Care
from taskmq_sql.sqlite.file.sets import run_each, select_among, select_each
from taskmq_sql.sqlite.file.thread import FileThread
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes
from taskmq_sql.sqlite.jobs.dispatches import holds
from taskmq_sql.sqlite.jobs.submissions import occur

_VERSIONS: Final = "SELECT id, version FROM schedule WHERE id IN (@values)"
_TURN: Final = """
    UPDATE schedule SET next_at = v.column2, record = v.column3, version = version + 1
    FROM (VALUES @rows) AS v WHERE schedule.id = v.column1
"""
# One by one: for a list of rows SQLite would scan the table.
_TAKE_OUT: Final = "DELETE FROM schedule_due WHERE shard = ? AND next_at = ? AND id = ?"
_PLACE: Final = "INSERT INTO schedule_due (shard, next_at, id) VALUES @rows"
_OCCUR: Final = """
    INSERT INTO occurrence (schedule, instant, run, at, kind, job) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_DUE_SHARDS: Final = """
    SELECT column1 FROM (VALUES @rows)
    WHERE EXISTS (SELECT 1 FROM schedule_due WHERE shard = column1 AND next_at < ?)
"""
_DUE: Final = """
    SELECT next_at, id, shard FROM schedule_due WHERE shard = ? AND next_at < ? ORDER BY next_at, id LIMIT ?
"""


class SqliteFirings:
    """The `Firings` of a store in an SQLite file."""

    drop = """
    delete from taskmq.occurrence where (schedule, instant, run) in
      (select schedule, instant, run from taskmq.occurrence where at < $1 limit $2) returning run"""

    def __init__(self, writer: FileThread, reader: FileThread, *, partitions: int) -> None:
        self._writer = writer
        self._reader = reader
        self._partitions = partitions

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueSchedule]:
        shards = range(partition, SCHEDULE_SHARDS, self._partitions)
        work = partial(_due, shards=shards, until=until, limit=limit)
        return await self._reader.call(work, care=Care.READ)

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        work = partial(_fire, partition=partition, epoch=epoch, firings=firings)
        return await self._writer.call(work, care=Care.DURABLE)


def _due(transaction: Transaction, shards: range, until: int, limit: int) -> list[DueSchedule]:
    found = [
        DueSchedule(*row)
        for shard in select_among(transaction.connection, _DUE_SHARDS, shards, until)
        for row in transaction.connection.execute(_DUE, (shard, until, limit)).fetchall()
    ]
    return sorted(found)[:limit]


def _fire(transaction: Transaction, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
    if not holds(transaction, partition, epoch):
        return None
    connection = transaction.connection
    versions = dict(select_each(connection, _VERSIONS, [one.before.id for one in firings]))
    done = [one for one in firings if versions.get(one.before.id) == one.before.version]
    run_each(connection, _TURN, [(one.before.id, one.next, one.record) for one in done])
    shards = [schedule_shard(one.before.app, one.before.name) for one in done]
    left = [(shard, one.before.next, one.before.id) for shard, one in zip(shards, done, strict=True)]
    connection.executemany(_TAKE_OUT, [row for row in left if row[1] is not None])
    following = [(shard, one.next, one.before.id) for shard, one in zip(shards, done, strict=True)]
    run_each(connection, _PLACE, [row for row in following if row[1] is not None])
    new = _occur(transaction, done)
    answers = occur(transaction, list(new.values()))
    if taken := {each for each, answer in zip(new, answers, strict=True) if answer.is_conflict}:
        raise OccurrenceConflict(frozenset(taken))
    return {one.before.id for one in done}


def _occur(transaction: Transaction, firings: Sequence[ScheduleFiring]) -> dict[tuple[int, int, str], NewJob]:
    """Insert the occurrences; return the jobs of new ones."""
    new: dict[tuple[int, int, str], NewJob] = {}
    for firing in firings:
        for one in firing.occurrences:
            job_id = None if one.job is None else id_bytes(one.job.id)
            row = (firing.before.id, one.instant, one.run, transaction.now, one.kind, job_id)
            if transaction.connection.execute(_OCCUR, row).rowcount and one.job is not None:
                new[firing.before.id, one.instant, one.run] = one.job
    return new
