"""The schedules of a job store in a file."""

import builtins
from collections.abc import Sequence
from functools import partial

from taskmq.contracts.jobs import (
    PARTITIONS,
    SCHEDULE_SHARDS,
    DueSchedule,
    FiredOccurrence,
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
)
from taskmq_embedded.work import Care
from taskmq_sql.sqlite.file.thread import FileThread
from taskmq_sql.sqlite.jobs import schedules

__all__ = ["SqliteSchedules"]


class SqliteSchedules:
    """A `JobScheduleStore` in an SQLite file.

    Args:
        writer, reader: the threads of the store.
    """

    def __init__(self, writer: FileThread, reader: FileThread) -> None:
        self._writer = writer
        self._reader = reader

    async def find(self, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
        return await self._reader.call(partial(schedules.find, app=app, names=names), care=Care.READ)

    async def list(
        self, app: str, *, after: str = "", limit: int, prefix: str = "", only_code: bool = False
    ) -> list[StoredSchedule]:
        work = partial(
            schedules.list_schedules, app=app, after=after, limit=limit, prefix=prefix, only_code=only_code
        )
        return await self._reader.call(work, care=Care.READ)

    async def write(self, changes: Sequence[ScheduleChange]) -> builtins.list[bool]:
        return await self._writer.call(partial(schedules.write, changes=changes), care=Care.DURABLE)

    async def due(self, partition: int, *, until: int, limit: int) -> builtins.list[DueSchedule]:
        shards = range(partition, SCHEDULE_SHARDS, PARTITIONS)
        work = partial(schedules.due, shards=shards, until=until, limit=limit)
        return await self._reader.call(work, care=Care.READ)

    async def load(self, ids: Sequence[int]) -> builtins.list[StoredSchedule]:
        return await self._reader.call(partial(schedules.load, ids=ids), care=Care.READ)

    async def alive(self, jobs: Sequence[str]) -> set[str]:
        return await self._reader.call(partial(schedules.alive, jobs=jobs), care=Care.READ)

    async def fire(self, partition: int, epoch: int, firings: Sequence[ScheduleFiring]) -> set[int] | None:
        work = partial(schedules.fire, partition=partition, epoch=epoch, firings=firings)
        return await self._writer.call(work, care=Care.DURABLE)

    async def occurrences(
        self, schedule: int, *, before: int | None = None, limit: int
    ) -> builtins.list[FiredOccurrence]:
        work = partial(schedules.occurrences, schedule=schedule, before=before, limit=limit)
        return await self._reader.call(work, care=Care.READ)

    async def drop_occurrences(self, *, before: int) -> None:
        """Forget those that were let through before an instant (ms), some at a time."""
        while await self._writer.call(partial(schedules.drop_occurrences, before=before), care=Care.LOOSE):
            pass
