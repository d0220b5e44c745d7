"""Schedules, their occurrences, and what makes up for those of the past."""

from typing import Annotated, Any

import msgspec

from taskmq.api.values import Instant, Note, ShortText
from taskmq.schedules.policy import Catchup, OnResume, Overlap

__all__ = [
    "BackfillBody",
    "BackfillView",
    "ChangeScheduleBody",
    "InstantList",
    "OccurrenceView",
    "PauseScheduleBody",
    "PutScheduleBody",
    "ReactionLine",
    "RuleExplanation",
    "ScheduleExplanation",
    "ScheduleLine",
    "ScheduleList",
    "ScheduleRule",
    "ScheduleView",
]


class ScheduleLine(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as lists show it.

    Attributes:
        tenant: "" for those of the app, and those that were made without one.
        starts: the task or the workflow.
        rule: when, in words.
        tz: the zone by whose clocks.
        is_dynamic: it was made at run time, and not by the code.
        next: when it is due next, by its jitter; None where it never is again, or is paused.
        paused: since when.
        task: the task, or the definition, that is called; None of a workflow.
        cron, every, at: the rule as it was given, `every` in seconds; all None where its code is the app's own.
        start, end: the first and the last instant that may be one.
        catchup, late_after, catchup_window, catchup_limit, catchup_rate, overlap, max_concurrency, on_resume, jitter:
            what becomes of occurrences that are late, or meet earlier ones; times in seconds.
        args, kwargs: by place and by name; None of a workflow, and for a caller who may not read jobs.
    """

    name: str
    tenant: str
    starts: str
    rule: str
    tz: str
    is_dynamic: bool
    next: str | None
    paused: str | None
    note: str
    task: str | None
    cron: str | None
    every: float | None
    at: str | None
    start: str | None
    end: str | None
    catchup: Catchup
    late_after: float
    catchup_window: float
    catchup_limit: int
    catchup_rate: int
    overlap: Overlap
    max_concurrency: int
    on_resume: OnResume
    jitter: float
    args: list[Any] | None
    kwargs: dict[str, Any] | None


class ReactionLine(msgspec.Struct, frozen=True, kw_only=True):
    """A reaction of the app: `starts` is its task, `rule` says when, in words."""

    name: str
    starts: str
    rule: str


class ScheduleList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of schedules, by name.

    Attributes:
        next: what to say as `cursor` for the next page.
        reactions: of the app, with the last page; none for one tenant.
        is_of_code_alone: the app has neither a store nor a state, so that only those of its code are known.
    """

    items: list[ScheduleLine]
    next: str | None
    reactions: list[ReactionLine] = []
    is_of_code_alone: bool = False


class OccurrenceView(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that was emitted: due, catchup, buffered, backfill or run."""

    scheduled_for: str | None
    emitted: str | None
    kind: str


class ScheduleView(ScheduleLine, frozen=True, kw_only=True):
    """A schedule, and what has become of its occurrences.

    Attributes:
        fired, late, missed, coalesced, skipped, failed, waiting: so many of them; all None where nothing keeps that:
            the app has neither a store nor a state.
        active: the jobs that wait or run.
    """

    fired: int | None
    late: int | None
    missed: int | None
    coalesced: int | None
    skipped: int | None
    failed: int | None
    waiting: int | None
    active: list[str]
    history: list[OccurrenceView]


class InstantList(msgspec.Struct, frozen=True):
    """Instants, the earliest first."""

    items: list[str | None]


class ScheduleExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in words.

    Attributes:
        means: when it is due.
        clock_changes: what becomes of times that do not exist, or come twice.
        next: when it is due next, by the clocks of its zone, whether or not it is paused.
        paused: since when, and `note` why.
    """

    name: str
    starts: str
    means: str
    clock_changes: str
    next: list[str]
    paused: str | None
    note: str


class ScheduleRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When something is due: one of `cron`, `every` and `at`.

    Attributes:
        cron: an expression, by the clocks of the zone `tz`.
        every: a duration, such as "15m".
        at: the one instant.
    """

    cron: ShortText | None = None
    tz: ShortText = "UTC"
    every: ShortText | float | None = None
    at: Instant | None = None


class RuleExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in words.

    Attributes:
        means: when something is due by it.
        clock_changes: what becomes of times that do not exist, or come twice.
        next: the next instants, by the clocks of its zone.
    """

    means: str
    clock_changes: str
    next: list[str]


class PutScheduleBody(ScheduleRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is started when: one of `cron`, `every` and `at`.

    Attributes:
        task: the name of a task, or of a definition, of which a version is taken now.
        args, kwargs: by place and by name.
        catchup: what becomes of occurrences that were not emitted in time.
        overlap: what becomes of an occurrence while `max_concurrency` earlier ones wait or run.
        on_resume: what becomes of the occurrences of a pause.
        jitter: emit each later by a time up to this, which follows from the schedule's name.
    """

    task: ShortText
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    catchup: Catchup | None = None
    overlap: Overlap | None = None
    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    on_resume: OnResume | None = None
    jitter: ShortText | float | None = None


class ChangeScheduleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a schedule; a field that is left out, or null, stays as it is.

    Attributes:
        task: the name of another task, or of a definition, of which a version is taken now.
        args, kwargs: in place of all arguments by place, or by name.
        cron: another expression, by the clocks of the same zone unless `tz` says another one.
        every, at: in place of any other rule.
        catchup, overlap, max_concurrency, on_resume, jitter: see `PutScheduleBody`.
    """

    task: ShortText | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    cron: ShortText | None = None
    tz: ShortText | None = None
    every: ShortText | float | None = None
    at: Instant | None = None
    catchup: Catchup | None = None
    overlap: Overlap | None = None
    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    on_resume: OnResume | None = None
    jitter: ShortText | float | None = None


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
