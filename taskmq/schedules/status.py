"""What people and monitoring see of schedules."""

from datetime import datetime
from typing import Literal, NamedTuple, Self, cast

import msgspec

from taskmq.model.telemetry.metrics import ScheduleCount
from taskmq.model.units import LAST_INSTANT, to_datetime
from taskmq.schedules.definition import ScheduleEntry
from taskmq.schedules.record import Emitted, ScheduleRecord

__all__ = [
    "Backfill",
    "ListedSchedule",
    "Occurrence",
    "OccurrenceCounts",
    "SchedulePage",
    "ScheduleStatus",
    "status_of",
]

Kind = Literal["due", "catchup", "buffered", "backfill", "run"]


class Occurrence(msgspec.Struct, frozen=True):
    """One that was emitted.

    Attributes:
        scheduled_for: its nominal instant.
        emitted: when the broker had it; with a job store, when its job was submitted.
        kind: why: it was `due`, missed (`catchup`), had to wait for an earlier one (`buffered`), or an operator asked
            for it (`backfill`, `run`).
    """

    scheduled_for: datetime
    emitted: datetime
    kind: Kind

    @classmethod
    def of(cls, emitted: Emitted) -> Self:
        """The same, for people."""
        return cls(_instant(emitted.instant), _instant(emitted.at), cast("Kind", emitted.kind))


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule at this moment.

    Attributes:
        next: when it is due next; None: never again, or paused.
        paused: since when.
        note: why it is paused, if a reason was given.
        fired: how many occurrences the broker has confirmed; with a job store, how many were submitted.
        late: how many of them more than a second after their instant; those that were missed not counted.
        missed: how many were not emitted in time, and `catchup` did not ask for.
        coalesced: how many of these the most recent one stands for, which was emitted.
        skipped: how many were dropped as earlier ones were running.
        failed: how many could not be, as their messages were too large or other jobs had their ids.
        waiting: how many wait for earlier ones to end.
        active: the jobs that wait or run, where the schedule limits how many do.
        history: the last twenty, the newest first.
    """

    name: str
    next: datetime | None
    paused: datetime | None
    note: str
    fired: int
    late: int
    missed: int
    coalesced: int
    skipped: int
    failed: int
    waiting: int
    active: list[str]
    history: list[Occurrence]


class ListedSchedule(NamedTuple):
    """A schedule of a page, and how it is; without its history."""

    entry: ScheduleEntry
    status: ScheduleStatus


class SchedulePage(NamedTuple):
    """Some schedules, by their names.

    Attributes:
        after: where the next page begins; None where there is none.
    """

    schedules: list[ListedSchedule]
    after: str | None


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill emits.

    Attributes:
        run: tells its jobs from others; "" when nothing is emitted.
        has_more: whether there are more than are listed.
    """

    run: str
    instants: list[datetime]
    has_more: bool


class OccurrenceCounts:
    """What one process has emitted, by task: so many numbers as the app has tasks, however many schedules it has."""

    def __init__(self) -> None:
        self._counts: dict[str, ScheduleCount] = {}

    def emitted(self, task: str, kind: str, *, late: float) -> None:
        """One more, `late` seconds after it was due; of a backfill, which is never late, they do not count."""
        count = self._of(task)
        count.emitted[kind] = count.emitted.get(kind, 0) + 1
        count.late.add(0.0 if kind == "backfill" else max(late, 0.0))

    def failed(self, task: str) -> None:
        """One more that cannot be sent."""
        self._of(task).failed += 1

    def by_task(self) -> list[ScheduleCount]:
        """The numbers of now."""
        return list(self._counts.values())

    def totals(self) -> tuple[int, int]:
        """How many were emitted, and how many cannot be sent."""
        counts = self._counts.values()
        return sum(sum(count.emitted.values()) for count in counts), sum(count.failed for count in counts)

    def _of(self, task: str) -> ScheduleCount:
        count = self._counts.get(task)
        if count is None:
            count = self._counts[task] = ScheduleCount(task)
        return count


def status_of(entry: ScheduleEntry, record: ScheduleRecord, history: list[Occurrence], *, now: int) -> ScheduleStatus:
    """The record, for people."""
    following = None if record.paused is not None else entry.trigger.next_after(now)
    counts = record.counts
    return ScheduleStatus(
        name=entry.name,
        next=_utc(following),
        paused=_utc(record.paused),
        note=record.note,
        fired=counts.fired,
        late=counts.late,
        missed=counts.missed,
        coalesced=counts.coalesced,
        skipped=counts.skipped,
        failed=counts.failed,
        waiting=len(record.buffered),
        active=[run.job_id for run in record.live(now)],
        history=history,
    )


def _utc(instant: int | None) -> datetime | None:
    # A trigger of the app's own may name an instant that no datetime has.
    return None if instant is None or instant > LAST_INSTANT else _instant(instant)


def _instant(instant: int) -> datetime:
    return to_datetime(instant)
