"""Views of schedules for people and monitoring."""

from datetime import datetime
from typing import Literal, NamedTuple, Self, cast

import msgspec

from taskmq.model.telemetry.metrics import ScheduleCount
from taskmq.model.units import LAST_INSTANT, to_datetime
from taskmq.schedules.definition import ScheduleEntry
from taskmq.schedules.record import Emitted, ScheduleRecord
from taskmq.schedules.turn import next_instant

Kind = Literal["due", "catchup", "buffered", "backfill", "run"]


class Occurrence(msgspec.Struct, frozen=True):
    """An emitted occurrence of a schedule.

    Attributes:
        scheduled_for: its nominal instant.
        emitted: when the broker confirmed it; with a job store, when its job was submitted.
        kind: the reason: `due`, missed (`catchup`), delayed by an earlier one (`buffered`), or requested (`backfill`,
            `run`).
    """

    scheduled_for: datetime
    emitted: datetime
    kind: Kind

    @classmethod
    def of(cls, emitted: Emitted) -> Self:
        """Build the view of an emitted occurrence."""
        return cls(_instant(emitted.instant), _instant(emitted.at), cast("Kind", emitted.kind))


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Current status of a schedule.

    Attributes:
        next: due time of the next occurrence, in the past if it is overdue; None if there is none, or it is paused.
        paused: since when it is paused.
        note: the reason for the pause, if given.
        refused: why the start of an occurrence was refused, or the error of the trigger or a middleware; "": neither.
            The scheduler tries again.
        fired: number of occurrences confirmed by the broker; with a job store, number of submitted jobs.
        late: number emitted more than a second after their instant, without missed ones.
        missed: number neither emitted in time nor caught up.
        coalesced: number of missed ones that the emitted most recent one stands for.
        skipped: number dropped because earlier ones were running.
        failed: number that could not be emitted: the message was too large, or another job had the id.
        waiting: number waiting for earlier ones to end.
        active: jobs that wait or run, if the schedule limits concurrency.
        history: the last twenty occurrences, newest first.
    """

    name: str
    next: datetime | None
    paused: datetime | None
    note: str
    refused: str
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
    """A schedule in a list with its status, without history."""

    entry: ScheduleEntry
    status: ScheduleStatus


class SchedulePage(NamedTuple):
    """A page of schedules by name.

    Attributes:
        after: cursor of the next page; None at the end.
    """

    schedules: list[ListedSchedule]
    after: str | None


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """Occurrences that a backfill emits.

    Attributes:
        run: identifies its jobs; "" if nothing is emitted.
        has_more: whether there are more than listed.
    """

    run: str
    instants: list[datetime]
    has_more: bool


class OccurrenceCounts:
    """Counters of one process by task, so that their number does not grow with that of schedules."""

    def __init__(self) -> None:
        self._counts: dict[str, ScheduleCount] = {}

    def count_emitted(self, task: str, kind: str, *, late: float) -> None:
        """Count an occurrence emitted `late` seconds after it was due; a backfill is never late."""
        count = self._of(task)
        count.emitted[kind] = count.emitted.get(kind, 0) + 1
        count.late.add(0.0 if kind == "backfill" else max(late, 0.0))

    def count_failed(self, task: str) -> None:
        """Count an occurrence that cannot be sent."""
        self._of(task).failed += 1

    def by_task(self) -> list[ScheduleCount]:
        """Return the current counters."""
        return list(self._counts.values())

    def totals(self) -> tuple[int, int]:
        """Return how many occurrences were emitted, and how many cannot be sent."""
        counts = self._counts.values()
        return sum(sum(count.emitted.values()) for count in counts), sum(count.failed for count in counts)

    def _of(self, task: str) -> ScheduleCount:
        count = self._counts.get(task)
        if count is None:
            count = self._counts[task] = ScheduleCount(task)
        return count


def status_of(entry: ScheduleEntry, record: ScheduleRecord, history: list[Occurrence], *, now: int) -> ScheduleStatus:
    """Build the status view of a record."""
    following, failure = None, record.failure
    if record.paused is None:
        try:
            following = next_instant(record, entry, now)
        except Exception as error:  # noqa: BLE001 - the app's own trigger; other schedules are listed
            failure = failure or f"{type(error).__name__}: {error}"
    counts = record.counts
    return ScheduleStatus(
        name=entry.name,
        next=_utc(following),
        paused=_utc(record.paused),
        note=record.note,
        refused=next((claim.refused for claim in record.claims if claim.refused), failure),
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
    # A custom trigger may return an instant that no datetime can represent.
    return None if instant is None or instant > LAST_INSTANT else _instant(instant)


def _instant(instant: int) -> datetime:
    return to_datetime(instant)
