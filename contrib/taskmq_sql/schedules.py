"""Schedules and their occurrences.

Every transaction locks rows of `schedule` before those of `schedule_due`, in the order of their ids.
"""

import builtins
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from taskmq.contracts.jobs import (
    DueSchedule,
    FiredOccurrence,
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
    schedule_shard,
)
from taskmq.model.keys import text_after
from taskmq.model.units import storable
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.steps import JobId, Row, Runner, Steps, ask, first, job_id

_COLUMNS: Final = "id, app, name, version, is_code, definition, record, next_at"
_FIND: Final = f"select {_COLUMNS} from taskmq.schedule where app = $1 and name = any($2::text[])"
_LIST: Final = f"""
select {_COLUMNS} from taskmq.schedule where app = $1 and name > $2 order by app, name limit $3"""
_LIST_OF_PREFIX: Final = f"""
select {_COLUMNS} from taskmq.schedule where app = $1 and name >= $2 and name <> $4 and name < $5
order by app, name limit $3"""
_LOAD: Final = f"select {_COLUMNS} from taskmq.schedule where id = any($1::bigint[])"
_ALIVE: Final = "select id from taskmq.job where id = any($1::uuid[])"
_MAKE: Final = """
insert into taskmq.schedule (next_at, version, shard, is_code, app, name, definition, record)
values ($1, 1, $2, $3, $4, $5, $6, $7) on conflict (app, name) do nothing returning id"""
_CHANGE: Final = """
update taskmq.schedule set next_at = $3, is_code = $4, definition = $5, record = $6, version = version + 1
where id = $1 and version = $2 returning id"""
_REMOVE: Final = "delete from taskmq.schedule where id = $1 and version = $2 returning id"
_TAKE_OUT: Final = "delete from taskmq.schedule_due where shard = $1 and next_at = $2 and id = $3"
_PLACE: Final = "insert into taskmq.schedule_due (shard, next_at, id) values ($1, $2, $3)"
_OCCURRENCES: Final = """
select instant, run, at, kind, job from taskmq.occurrence where schedule = $1 and instant < $2
order by schedule desc, instant desc, run desc limit $3"""
_END: Final = 2**63 - 1
_DROPPED: Final = 1_000


class Firings(Protocol):
    """Due schedules and the jobs of their occurrences. Tables differ between databases."""

    @property
    def drop(self) -> str:
        """Return the statement that deletes up to $2 occurrences before $1 and returns a row for each."""
        ...

    async def due(self, partition: int, *, until: int, limit: int) -> list[DueSchedule]:
        """See `JobScheduleStore.due`."""
        ...

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        """See `JobScheduleStore.fire`."""
        ...


class SqlSchedules:
    """A `JobScheduleStore` in the database's tables.

    Args:
        lists: reads lists and writes changes.
        turns: reads due schedules.
        upkeep: deletes old occurrences.
        firings: implementation for the same database.
    """

    def __init__(self, *, lists: Runner, turns: Runner, upkeep: Runner, firings: Firings) -> None:
        self._lists = lists
        self._turns = turns
        self._upkeep = upkeep
        self._firings = firings

    async def find(self, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
        wanted = [storable(name) for name in names]
        found = {row[2]: _schedule(row) for row in await self._lists.read(partial(ask, _FIND, app, wanted))}
        return [found.get(name) for name in wanted]

    async def list(
        self, app: str, *, after: str = "", limit: int, prefix: str = "", only_code: bool = False
    ) -> list[StoredSchedule]:
        begin, last = storable(prefix), storable(after)
        statement = _LIST
        args: tuple[str | int, ...] = (app, last, limit)
        if end := text_after(begin):
            statement, args = _LIST_OF_PREFIX, (app, max(last, begin), limit, last, end)
        if only_code:
            statement = statement.replace("where", "where is_code and")
        return [_schedule(row) for row in await self._lists.read(partial(ask, statement, *args))]

    async def write(self, changes: Sequence[ScheduleChange]) -> builtins.list[bool]:
        return await self._lists.write(partial(_write_all, changes)) if changes else []

    async def due(self, partition: int, *, until: int, limit: int) -> builtins.list[DueSchedule]:
        return await self._firings.due(partition, until=until, limit=limit)

    async def load(self, ids: Sequence[int]) -> builtins.list[StoredSchedule]:
        return [_schedule(row) for row in await self._turns.read(partial(ask, _LOAD, [*ids]))]

    async def alive(self, jobs: Sequence[str]) -> set[str]:
        wanted = [JobId(each) for each in jobs if is_job_id(each)]
        return {job_id(row[0]) for row in await self._turns.read(partial(ask, _ALIVE, wanted))} if wanted else set()

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        return await self._firings.fire(partition, epoch, firings)

    async def occurrences(
        self, schedule: int, *, before: int | None = None, limit: int
    ) -> builtins.list[FiredOccurrence]:
        work = partial(ask, _OCCURRENCES, schedule, _END if before is None else before, limit)
        return [
            FiredOccurrence(instant=instant, run=run, at=at, kind=kind, job=None if job is None else job_id(job))
            for instant, run, at, kind, job in await self._lists.read(work)
        ]

    async def drop_occurrences(self, *, before: int) -> None:
        """Delete the occurrences that were recorded before an instant (ms), in portions."""
        work = partial(ask, self._firings.drop, before, _DROPPED)
        while len(await self._upkeep.change(work, is_lasting=False)) == _DROPPED:
            pass


def _write_all(changes: Sequence[ScheduleChange]) -> Steps[list[bool]]:
    # In one fixed order, so that concurrent calls cannot deadlock.
    order = sorted(range(len(changes)), key=lambda index: _lock_order(changes[index]))
    done: dict[int, bool] = {}
    for index in order:
        done[index] = yield from _write(changes[index])
    return [done[index] for index in range(len(changes))]


def _write(change: ScheduleChange) -> Steps[bool]:
    shard, before = schedule_shard(change.app, change.name), change.before
    values = (change.definition, change.record)
    if before is not None and (before.app, before.name) != (change.app, change.name):
        return False
    if before is None:
        if change.is_removed:
            return not (yield from ask(_FIND, change.app, [change.name]))
        row = yield from first(_MAKE, change.next, shard, change.is_code, change.app, change.name, *values)
    elif change.is_removed:
        row = yield from first(_REMOVE, before.id, before.version)
    else:
        row = yield from first(_CHANGE, before.id, before.version, change.next, change.is_code, *values)
    if row is None:
        return False
    if before is not None and before.next is not None:
        yield from ask(_TAKE_OUT, shard, before.next, before.id)
    if change.next is not None and not change.is_removed:
        yield from ask(_PLACE, shard, change.next, row[0])
    return True


def _schedule(row: Row) -> StoredSchedule:
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


def _lock_order(change: ScheduleChange) -> tuple[int, str]:
    return (0 if change.before is None else change.before.id, change.name)
