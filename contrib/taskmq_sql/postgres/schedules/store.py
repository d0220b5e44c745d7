"""The schedules of a job store on PostgreSQL."""

import builtins
import uuid
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.jobs import (
    SCHEDULE_SHARDS,
    DueSchedule,
    FiredOccurrence,
    NewJob,
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
    partition_key,
    schedule_shard,
)
from taskmq.errors import OccurrenceConflict
from taskmq.model.keys import text_after
from taskmq.model.units import storable
from taskmq_sql.jobs.values import is_job_id
from taskmq_sql.postgres.connections import Connection, Row, undone
from taskmq_sql.postgres.database import Database
from taskmq_sql.postgres.schedules import statements
from taskmq_sql.postgres.submission import Numbers, insert_jobs, numbers_of

__all__ = ["PostgresSchedules"]

_END: Final = 2**63 - 1
_DROPPED: Final = 10_000


class PostgresSchedules:
    """A `JobScheduleStore`; it fires over a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
        wanted = [storable(name) for name in names]
        rows = await self._fetch(statements.FIND, storable(app), wanted)
        found = {row["name"]: _stored(row) for row in rows}
        return [found.get(name) for name in wanted]

    async def list(
        self, app: str, *, after: str = "", limit: int, prefix: str = "", only_code: bool = False
    ) -> list[StoredSchedule]:
        begin, place = storable(prefix), storable(after)
        if end := text_after(begin):
            statement = statements.LIST_CODE_OF_PREFIX if only_code else statements.LIST_OF_PREFIX
            rows = await self._fetch(statement, storable(app), max(place, begin), limit, place, end)
        else:
            statement = statements.LIST_CODE if only_code else statements.LIST
            rows = await self._fetch(statement, storable(app), place, limit)
        return [_stored(row) for row in rows]

    async def write(self, changes: Sequence[ScheduleChange]) -> builtins.list[bool]:
        # In one order everywhere, so that two calls wait for each other once and not in a circle.
        order = sorted(range(len(changes)), key=lambda place: _lock_order(changes[place]))

        async def write(connection: Connection) -> dict[int, bool]:
            return {place: await _write(connection, changes[place]) for place in order}

        done = await self._database.changes.run("transaction", write) if changes else {}
        return [done[place] for place in range(len(changes))]

    async def due(self, partition: int, *, until: int, limit: int) -> builtins.list[DueSchedule]:
        shards = [shard for shard in range(SCHEDULE_SHARDS) if shard % self._database.partitions == partition]
        rows = await self._database.firings.run(
            "read", lambda connection: connection.fetch(statements.DUE, shards, until, limit)
        )
        return [DueSchedule(*row) for row in rows]

    async def load(self, ids: Sequence[int]) -> builtins.list[StoredSchedule]:
        rows = await self._database.firings.run(
            "read", lambda connection: connection.fetch(statements.LOAD, list(ids))
        )
        return [_stored(row) for row in rows]

    async def alive(self, jobs: Sequence[str]) -> set[str]:
        wanted = [job_id for job_id in jobs if is_job_id(job_id)]
        if not wanted:
            return set()
        rows = await self._database.firings.run("read", lambda connection: connection.fetch(statements.ALIVE, wanted))
        return {str(row[0]) for row in rows}

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        jobs = [one.job for firing in firings for one in firing.occurrences if one.job is not None]
        numbers = await numbers_of(self._database.names, jobs)
        ordered = sorted(firings, key=lambda firing: firing.before.id)

        async def fire(connection: Connection) -> set[int] | OccurrenceConflict | None:
            row = await connection.fetchrow(
                statements.TURN,
                [firing.before.id for firing in ordered],
                [firing.before.version for firing in ordered],
                [schedule_shard(firing.before.app, firing.before.name) for firing in ordered],
                [firing.before.next for firing in ordered],
                [firing.next for firing in ordered],
                [firing.record for firing in ordered],
                partition_key(partition),
                epoch,
            )
            if row is None or row["held"] is None:
                return None
            taken = set(row["taken"])
            done = [firing for firing in ordered if firing.before.id in taken]
            if conflicts := await _occur(connection, done, numbers):
                raise undone(OccurrenceConflict(conflicts))
            return taken

        fired = await self._database.firings.run("transaction", fire)
        if isinstance(fired, OccurrenceConflict):
            raise fired
        return fired

    async def occurrences(
        self, schedule: int, *, before: int | None = None, limit: int
    ) -> builtins.list[FiredOccurrence]:
        rows = await self._fetch(statements.OCCURRENCES, schedule, _END if before is None else before, limit)
        return [
            FiredOccurrence(
                instant=row["instant"],
                run=row["run"],
                at=row["at"],
                kind=row["kind"],
                job=None if row["job"] is None else str(row["job"]),
            )
            for row in rows
        ]

    async def drop_occurrences(self, *, before: int) -> None:
        """Forget those that were let through before an instant (ms), some at a time."""
        while (
            await self._database.upkeep.run(
                "statement",
                lambda connection: connection.execute(statements.DROP_OCCURRENCES, before, _DROPPED),
            )
            == f"DELETE {_DROPPED}"
        ):
            pass

    async def _fetch(self, query: str, *args: object) -> Sequence[Row]:
        return await self._database.reads.run("read", lambda connection: connection.fetch(query, *args))


async def _write(connection: Connection, change: ScheduleChange) -> bool:
    shard, before = schedule_shard(change.app, change.name), change.before
    if before is not None and (before.app, before.name) != (change.app, change.name):
        return False
    if before is None:
        if change.is_removed:
            return not await connection.fetch(statements.FIND, storable(change.app), [storable(change.name)])
        found = await connection.fetchval(
            statements.MAKE,
            change.next,
            shard,
            change.is_code,
            storable(change.app),
            storable(change.name),
            change.definition,
            change.record,
        )
    elif change.is_removed:
        found = await connection.fetchval(statements.REMOVE, before.id, before.version)
    else:
        found = await connection.fetchval(
            statements.CHANGE,
            before.id,
            before.version,
            change.next,
            change.is_code,
            change.definition,
            change.record,
        )
    if found is None:
        return False
    if before is not None and before.next is not None:
        await connection.execute(statements.TAKE_OUT, [shard], [before.next], [found])
    if change.next is not None and not change.is_removed:
        await connection.execute(statements.PLACE, [shard], [change.next], [found])
    return True


async def _occur(
    connection: Connection, firings: Sequence[ScheduleFiring], numbers: Numbers
) -> frozenset[tuple[int, int, str]]:
    """Write down the occurrences, and submit the jobs of those that are new; those whose keys other jobs have."""
    jobs: dict[tuple[int, int, str], NewJob | None] = {}
    kinds: builtins.list[str] = []
    for firing in firings:
        for one in firing.occurrences:
            if (key := (firing.before.id, one.instant, one.run)) not in jobs:
                jobs[key] = one.job
                kinds.append(one.kind)
    if not jobs:
        return frozenset()
    rows = await connection.fetch(
        statements.OCCUR,
        [schedule for schedule, _, _ in jobs],
        [instant for _, instant, _ in jobs],
        [run for _, _, run in jobs],
        kinds,
        [None if job is None else uuid.UUID(job.id) for job in jobs.values()],
    )
    new = {key: job for row in rows if (job := jobs[key := (row[0], row[1], row[2])]) is not None}
    answers = await insert_jobs(connection, list(new.values()), numbers) if new else []
    return frozenset(key for key, answer in zip(new, answers, strict=True) if answer.is_conflict)


def _stored(row: Row) -> StoredSchedule:
    return StoredSchedule(
        id=row["id"],
        app=row["app"],
        name=row["name"],
        version=row["version"],
        is_code=row["is_code"],
        definition=row["definition"],
        record=row["record"],
        next=row["next_at"],
    )


def _lock_order(change: ScheduleChange) -> tuple[int, str]:
    return (0 if change.before is None else change.before.id, change.name)
