"""Schedules over dictionaries; the caller says what time it is."""

import builtins
from collections.abc import Sequence

from msgspec.structs import replace

from taskmq.contracts.jobs import (
    DueSchedule,
    FiredOccurrence,
    NewJob,
    ScheduleChange,
    ScheduleFiring,
    StoredSchedule,
    schedule_shard,
)

__all__ = ["ScheduleModel"]


class ScheduleModel:
    """What `JobScheduleStore` promises, but for the jobs and the fence."""

    def __init__(self) -> None:
        self._rows: dict[int, StoredSchedule] = {}
        self._fired: dict[tuple[int, int, str], FiredOccurrence] = {}
        self._last_id = 0

    def find(self, app: str, names: Sequence[str]) -> list[StoredSchedule | None]:
        found = {row.name: row for row in self._rows.values() if row.app == app}
        return [found.get(name) for name in names]

    def list(self, app: str, *, after: str, limit: int, prefix: str, only_code: bool) -> list[StoredSchedule]:
        found = [
            row
            for row in self._rows.values()
            if row.app == app and row.name > after and row.name.startswith(prefix) and (row.is_code or not only_code)
        ]
        return sorted(found, key=_by_name)[:limit]

    def write(self, changes: Sequence[ScheduleChange]) -> builtins.list[bool]:
        return [self._write(change) for change in changes]

    def _write(self, change: ScheduleChange) -> bool:
        (found,) = self.find(change.app, [change.name])
        before = change.before
        if (found is None) is not (before is None):
            return False
        if found is not None and before is not None and (found.id, found.version) != (before.id, before.version):
            return False
        if change.is_removed:
            if found is not None:
                del self._rows[found.id]
            return True
        if found is None:
            self._last_id += 1
        number = self._last_id if found is None else found.id
        self._rows[number] = StoredSchedule(
            id=number,
            app=change.app,
            name=change.name,
            version=1 if found is None else found.version + 1,
            is_code=change.is_code,
            definition=change.definition,
            record=change.record,
            next=change.next,
        )
        return True

    def due(self, partition: int, *, partitions: int, until: int, limit: int) -> builtins.list[DueSchedule]:
        found = [
            DueSchedule(row.next, row.id, shard)
            for row in self._rows.values()
            if row.next is not None
            and row.next < until
            and (shard := schedule_shard(row.app, row.name)) % partitions == partition
        ]
        return sorted(found)[:limit]

    def load(self, ids: Sequence[int]) -> builtins.list[StoredSchedule]:
        return [self._rows[number] for number in ids if number in self._rows]

    def new_jobs(self, firings: Sequence[ScheduleFiring]) -> dict[tuple[int, int, str], NewJob]:
        """The jobs of those occurrences that are new."""
        return {
            key: one.job
            for firing in firings
            if self._is_as_taken(firing)
            for one in firing.occurrences
            if one.job is not None and (key := (firing.before.id, one.instant, one.run)) not in self._fired
        }

    def fire(self, firings: Sequence[ScheduleFiring], *, now: int) -> set[int]:
        """The ids of those that were as they were taken to be."""
        taken: set[int] = set()
        for firing in firings:
            if not self._is_as_taken(firing):
                continue
            found = self._rows[firing.before.id]
            self._rows[found.id] = replace(found, version=found.version + 1, record=firing.record, next=firing.next)
            taken.add(found.id)
            for one in firing.occurrences:
                key = (found.id, one.instant, one.run)
                if key not in self._fired:
                    job_id = None if one.job is None else one.job.id
                    self._fired[key] = FiredOccurrence(
                        instant=one.instant, run=one.run, at=now, kind=one.kind, job=job_id
                    )
        return taken

    def _is_as_taken(self, firing: ScheduleFiring) -> bool:
        found = self._rows.get(firing.before.id)
        return found is not None and found.version == firing.before.version

    def occurrences(self, schedule: int, *, before: int | None, limit: int) -> builtins.list[FiredOccurrence]:
        found = [
            one
            for (number, instant, _), one in self._fired.items()
            if number == schedule and (before is None or instant < before)
        ]
        return sorted(found, key=_by_instant, reverse=True)[:limit]


def _by_name(row: StoredSchedule) -> str:
    return row.name


def _by_instant(one: FiredOccurrence) -> tuple[int, str]:
    return one.instant, one.run
