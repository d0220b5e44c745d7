"""Schedules, what is due of them, and their occurrences."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from taskmq.contracts.jobs import (
    DueSchedule,
    FiredOccurrence,
    NewJob,
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
    schedule_shard,
)
from taskmq.errors import OccurrenceConflict
from taskmq.model.keys import text_after
from taskmq.model.units import storable
from taskmq_sql.sqlite.file.sets import run_each, select_each
from taskmq_sql.sqlite.file.transaction import Transaction
from taskmq_sql.sqlite.jobs.codes import id_bytes, id_text
from taskmq_sql.sqlite.jobs.dispatches import holds
from taskmq_sql.sqlite.jobs.submissions import occur

__all__ = ["alive", "drop_occurrences", "due", "find", "fire", "list_schedules", "load", "occurrences", "write"]

_END: Final = 2**63 - 1
_DROPPED: Final = 1_000
_COLUMNS: Final = "id, app, name, version, is_code, definition, record, next_at"
_FIND: Final = f"SELECT {_COLUMNS} FROM schedule WHERE app = ? AND name = ?"
_LIST: Final = f"SELECT {_COLUMNS} FROM schedule WHERE app = ? AND name > ? ORDER BY name LIMIT ?"
_LIST_OF_PREFIX: Final = f"""
    SELECT {_COLUMNS} FROM schedule WHERE app = ? AND name >= ? AND name <> ? AND name < ? ORDER BY name LIMIT ?
"""
_LOAD: Final = f"SELECT {_COLUMNS} FROM schedule WHERE id IN (@values)"
_ALIVE: Final = "SELECT id FROM job WHERE id IN (@values)"
_MAKE: Final = """
    INSERT INTO schedule (next_at, version, shard, is_code, app, name, definition, record)
    VALUES (?, 1, ?, ?, ?, ?, ?, ?) RETURNING id
"""
_CHANGE: Final = """
    UPDATE schedule SET next_at = ?, is_code = ?, definition = ?, record = ?, version = version + 1 WHERE id = ?
"""
_TURN: Final = """
    UPDATE schedule SET next_at = v.column2, record = v.column3, version = version + 1
    FROM (VALUES @rows) AS v WHERE schedule.id = v.column1
"""
_TAKE_OUT: Final = "DELETE FROM schedule_due WHERE (shard, next_at, id) IN (VALUES @rows)"
_PLACE: Final = "INSERT INTO schedule_due (shard, next_at, id) VALUES @rows"
_OCCUR: Final = """
    INSERT INTO occurrence (schedule, instant, run, at, kind, job) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
_DUE: Final = """
    SELECT next_at, id, shard FROM schedule_due WHERE shard = ? AND next_at < ? ORDER BY next_at, id LIMIT ?
"""
_OCCURRENCES: Final = """
    SELECT instant, run, at, kind, job FROM occurrence WHERE schedule = ? AND instant < ?
    ORDER BY instant DESC, run DESC LIMIT ?
"""
_DROP: Final = """
    DELETE FROM occurrence WHERE (schedule, instant, run) IN
        (SELECT schedule, instant, run FROM occurrence WHERE at < ? LIMIT ?)
"""


def find(transaction: Transaction, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
    """The schedules of these names, in their order; None for each that is not there."""
    found = [transaction.connection.execute(_FIND, (storable(app), storable(name))).fetchall() for name in names]
    return [_stored(rows[0]) if rows else None for rows in found]


def list_schedules(
    transaction: Transaction, app: str, after: str, limit: int, *, prefix: str, only_code: bool
) -> list[StoredSchedule]:
    """Up to `limit` schedules of the app whose names come after `after` and begin with `prefix`."""
    begin, place = storable(prefix), storable(after)
    if end := text_after(begin):
        statement = _LIST_OF_PREFIX
        values: tuple[str | int, ...] = (storable(app), max(place, begin), place, end, limit)
    else:
        statement, values = _LIST, (storable(app), place, limit)
    if only_code:
        statement = statement.replace("WHERE", "WHERE is_code AND")
    return [_stored(row) for row in transaction.connection.execute(statement, values).fetchall()]


def load(transaction: Transaction, ids: Sequence[int]) -> list[StoredSchedule]:
    """Those of these schedules that are there."""
    return [_stored(row) for row in select_each(transaction.connection, _LOAD, ids)]


def alive(transaction: Transaction, jobs: Sequence[str]) -> set[str]:
    """Which of these jobs have not ended."""
    ids = [job_id for job in jobs if (job_id := id_bytes(job)) is not None]
    return {id_text(row[0]) for row in select_each(transaction.connection, _ALIVE, ids)}


def write(transaction: Transaction, changes: Sequence[ScheduleChange]) -> list[bool]:
    """Make each change that finds its `before`; which were made."""
    return [_write(transaction, change) for change in changes]


def due(transaction: Transaction, shards: Iterable[int], until: int, limit: int) -> list[DueSchedule]:
    """Up to `limit` schedules of the shards that are due before `until` (ms), the first first."""
    found = [
        DueSchedule(*row)
        for shard in shards
        for row in transaction.connection.execute(_DUE, (shard, until, limit)).fetchall()
    ]
    return sorted(found)[:limit]


def fire(transaction: Transaction, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
    """Make each change that finds its `before`, with its occurrences and their jobs; the ids of those schedules."""
    if not holds(transaction, partition, epoch):
        return None
    connection = transaction.connection
    rows = select_each(
        connection, "SELECT id, version FROM schedule WHERE id IN (@values)", [one.before.id for one in firings]
    )
    versions = dict(rows)
    done = [one for one in firings if versions.get(one.before.id) == one.before.version]
    run_each(connection, _TURN, [(one.before.id, one.next, one.record) for one in done])
    places = [(_shard(one.before), one.before.next, one.before.id) for one in done]
    run_each(connection, _TAKE_OUT, [place for place in places if place[1] is not None])
    following = [(shard, one.next, number) for one, (shard, _, number) in zip(done, places, strict=True)]
    run_each(connection, _PLACE, [place for place in following if place[1] is not None])
    new = _occur(transaction, done)
    answers = occur(transaction, list(new.values()))
    if taken := {each for each, answer in zip(new, answers, strict=True) if answer.is_conflict}:
        raise OccurrenceConflict(frozenset(taken))
    return {one.before.id for one in done}


def occurrences(transaction: Transaction, schedule: int, before: int | None, limit: int) -> list[FiredOccurrence]:
    """Up to `limit` occurrences of the schedule, of instants before `before`, the latest first."""
    last = _END if before is None else before
    return [
        FiredOccurrence(instant=instant, run=run, at=at, kind=kind, job=None if job is None else id_text(job))
        for instant, run, at, kind, job in transaction.connection.execute(
            _OCCURRENCES, (schedule, last, limit)
        ).fetchall()
    ]


def drop_occurrences(transaction: Transaction, before: int) -> bool:
    """Forget some of those that were let through before an instant (ms); whether there may be more."""
    return transaction.connection.execute(_DROP, (before, _DROPPED)).rowcount == _DROPPED


def _write(transaction: Transaction, change: ScheduleChange) -> bool:
    connection, before = transaction.connection, change.before
    (found,) = find(transaction, change.app, [change.name])
    if (None if found is None else (found.id, found.version)) != (
        None if before is None else (before.id, before.version)
    ):
        return False
    shard = schedule_shard(change.app, change.name)
    number = None if found is None else found.id
    if found is not None and found.next is not None:
        run_each(connection, _TAKE_OUT, [(shard, found.next, found.id)])
    if change.is_removed:
        connection.execute("DELETE FROM schedule WHERE id = ?", (number,))
        return True
    if number is None:
        row: Sequence[Any] = (
            change.next,
            shard,
            change.is_code,
            storable(change.app),
            storable(change.name),
            change.definition,
            change.record,
        )
        number = connection.execute(_MAKE, row).fetchall()[0][0]
    else:
        connection.execute(_CHANGE, (change.next, change.is_code, change.definition, change.record, number))
    if change.next is not None:
        run_each(connection, _PLACE, [(shard, change.next, number)])
    return True


def _occur(transaction: Transaction, firings: Sequence[ScheduleFiring]) -> dict[tuple[int, int, str], NewJob]:
    """Write down the occurrences; the jobs of those that are new."""
    new: dict[tuple[int, int, str], NewJob] = {}
    for firing in firings:
        for one in firing.occurrences:
            job_id = None if one.job is None else id_bytes(one.job.id)
            row = (firing.before.id, one.instant, one.run, transaction.now, one.kind, job_id)
            if transaction.connection.execute(_OCCUR, row).rowcount and one.job is not None:
                new[firing.before.id, one.instant, one.run] = one.job
    return new


def _shard(row: StoredSchedule) -> int:
    return schedule_shard(row.app, row.name)


def _stored(row: Sequence[Any]) -> StoredSchedule:
    number, app, name, version, is_code, definition, record, next_at = row
    return StoredSchedule(
        id=number,
        app=app,
        name=name,
        version=version,
        is_code=bool(is_code),
        definition=definition,
        record=record,
        next=next_at,
    )
