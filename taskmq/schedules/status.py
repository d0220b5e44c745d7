"""What people see of a schedule."""

from datetime import UTC, datetime
from typing import Literal, cast

import msgspec

from taskmq.schedules.definition import ScheduleEntry
from taskmq.schedules.record import ScheduleRecord

__all__ = ["Backfill", "Occurrence", "ScheduleStatus", "status_of"]

Kind = Literal["due", "catchup", "buffered", "backfill", "run"]


class Occurrence(msgspec.Struct, frozen=True):
    """One that was emitted.

    Attributes:
        scheduled_for: its nominal instant.
        emitted: when the broker had it.
        kind: why: it was `due`, missed (`catchup`), had to wait for an earlier one (`buffered`), or somebody asked
            for it (`backfill`, `run`).
    """

    scheduled_for: datetime
    emitted: datetime
    kind: Kind


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands.

    Attributes:
        next: when it is due next; None: never again, or paused.
        paused: since when.
        note: why it is paused, if somebody has said so.
        fired: how many occurrences the broker has confirmed.
        late: how many of them more than a second after their instant; those that were missed not counted.
        missed: how many nobody emitted in time, and `catchup` did not ask for.
        skipped: how many were dropped as earlier ones were running.
        failed: how many could not be sent, as their messages were too large.
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
    skipped: int
    failed: int
    waiting: int
    active: list[str]
    history: list[Occurrence]


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill emits.

    Attributes:
        run: tells its jobs from others; "" when nothing is emitted.
        has_more: whether there are more than are listed.
    """

    run: str
    instants: list[datetime]
    has_more: bool


def status_of(entry: ScheduleEntry, record: ScheduleRecord, *, now: int) -> ScheduleStatus:
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
        skipped=counts.skipped,
        failed=counts.failed,
        waiting=len(record.buffered),
        active=[run.job_id for run in record.live(now)],
        history=[
            Occurrence(_instant(one.instant), _instant(one.at), cast("Kind", one.kind))
            for one in reversed(record.history)
        ],
    )


def _utc(instant: int | None) -> datetime | None:
    return None if instant is None else _instant(instant)


def _instant(instant: int) -> datetime:
    return datetime.fromtimestamp(instant / 1000, UTC)
