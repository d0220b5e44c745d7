"""Schedules, their occurrences, and what makes up for those of the past."""

import msgspec

from taskmq.api.values import Instant, Note

__all__ = [
    "BackfillBody",
    "BackfillView",
    "InstantList",
    "OccurrenceView",
    "PauseScheduleBody",
    "ScheduleLine",
    "ScheduleLines",
    "ScheduleView",
]


class ScheduleLine(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule.

    Attributes:
        starts: the task or the workflow.
        rule: when, in words.
        is_dynamic: it was made at run time, and not by the code.
        next: when it is due next; None where it never is again, or is paused.
        paused: since when.
    """

    name: str
    starts: str
    rule: str
    is_dynamic: bool
    next: str | None
    paused: str | None
    note: str


class ScheduleLines(msgspec.Struct, frozen=True):
    """All schedules, by name."""

    items: list[ScheduleLine]


class OccurrenceView(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that was emitted: due, catchup, buffered, backfill or run."""

    scheduled_for: str | None
    emitted: str | None
    kind: str


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and what has become of its occurrences; `active` are the jobs that wait or run."""

    name: str
    starts: str
    rule: str
    is_dynamic: bool
    next: str | None
    paused: str | None
    note: str
    fired: int
    late: int
    missed: int
    skipped: int
    failed: int
    waiting: int
    active: list[str]
    history: list[OccurrenceView]


class InstantList(msgspec.Struct, frozen=True):
    """Instants, the earliest first."""

    items: list[str | None]


class PauseScheduleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is paused, for others to see."""

    note: Note = ""


class BackfillBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which occurrences are emitted, again or for the first time.

    Attributes:
        start, end: the first and the last instant that may be one; `end` is not later than now.
        dry_run: only say which they are.
    """

    start: Instant
    end: Instant
    dry_run: bool = False


class BackfillView(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill emits; `run` tells its jobs from others, "" where nothing is emitted."""

    run: str
    instants: list[str | None]
    has_more: bool
