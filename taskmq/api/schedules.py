"""Schedules, their occurrences and backfills."""

from typing import Annotated, Any, Literal

import msgspec

from taskmq.api.job_requests import JobTerms
from taskmq.api.values import Instant, Note, ShortText
from taskmq.schedules.policy import Catchup, OnResume, Overlap
from taskmq.schedules.triggers import DstFold, DstGap


class ScheduleLine(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in a list.

    Attributes:
        tenant: the tenant; "" for schedules of the app, and those created without a tenant.
        starts: the task or workflow it starts.
        rule: the rule in words.
        tz: the time zone.
        is_dynamic: whether it was created at run time rather than in code.
        next: the next occurrence, including jitter, in the past if it is overdue; None if there is none, or it is
            paused.
        paused: when it was paused.
        refused: why the start of an occurrence was refused, or the error of the rule or a middleware; "": neither.
            The scheduler tries again.
        task: the task or definition it calls; None for a workflow.
        cron, every, at, seconds, dst_gap, dst_fold, both_days, phase, start, end, max_runs, exclude: the rule as
            given, durations in seconds; None if it is not given, or the app's code computes it.
        job: options of its jobs that its task or definition does not have.
        catchup, late_after, catchup_window, catchup_limit, catchup_rate, overlap, max_concurrency, on_resume, jitter:
            the handling of late and overlapping occurrences; durations in seconds.
        args, kwargs: positional and keyword arguments; None for a workflow, and for callers who may not read jobs.
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
    refused: str = ""
    task: str | None
    cron: str | None
    every: float | None
    at: str | None
    seconds: bool | None = None
    dst_gap: DstGap | None = None
    dst_fold: DstFold | None = None
    both_days: bool | None = None
    phase: float | None = None
    start: str | None
    end: str | None
    max_runs: int | None = None
    exclude: list[str] | None = None
    job: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
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
    """A reaction of the app, in a list.

    Attributes:
        starts: the task it calls.
        rule: its condition in words.
        when: its condition as data; durations in seconds.
        debounce: seconds without further events before it calls the task.
        limit: seconds from its first event to the call; None if unlimited. `at_limit` says what happens then.
        is_dynamic: whether it was created at run time rather than in code.
        seen_by: the process that sees its events.
        queues: the queues of messages that it consumes.
    """

    name: str
    starts: str
    rule: str
    when: dict[str, Any]
    debounce: float
    limit: float | None
    at_limit: Literal["drop", "call"]
    is_dynamic: bool
    seen_by: Literal["beat", "worker", "scheduler"]
    queues: list[str]


class ReactionConditionView(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a reaction.

    Attributes:
        condition: the condition in words.
        is_met: whether an event has met it since the last call.
        event: its last event since then; None for callers who may not read jobs.
    """

    condition: str
    is_met: bool
    event: dict[str, Any] | None


class ReactionView(ReactionLine, frozen=True, kw_only=True):
    """A reaction, what it waits for, and its calls.

    Attributes:
        conditions: its conditions. The reaction waits for those that are not met.
        waiting: number of calls that wait for the broker.
        fired: number of calls that the broker has confirmed.
        failed: number of calls that were too large.
        dropped: how often the limit forgot the events.
        last: when the last call was confirmed. This and the counts are None if the reaction keeps no state.
    """

    conditions: list[ReactionConditionView]
    waiting: int | None
    fired: int | None
    failed: int | None
    dropped: int | None
    last: str | None


class ReactionList(msgspec.Struct, frozen=True):
    """A page of reactions, ordered by name; `next` is the `cursor` of the next page."""

    items: list[ReactionLine]
    next: str | None


class ScheduleList(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of schedules, ordered by name.

    Attributes:
        next: the `cursor` of the next page.
        reactions: the app's reactions, on the last page; empty if a tenant is selected.
        is_of_code_alone: whether the app has neither a store nor a state, so that only schedules in code are listed.
    """

    items: list[ScheduleLine]
    next: str | None
    reactions: list[ReactionLine] = []
    is_of_code_alone: bool = False


class OccurrenceView(msgspec.Struct, frozen=True, kw_only=True):
    """An emitted occurrence: due, catchup, buffered, backfill or run."""

    scheduled_for: str | None
    emitted: str | None
    kind: str


class ScheduleView(ScheduleLine, frozen=True, kw_only=True):
    """A schedule with the history of its occurrences.

    Attributes:
        fired, late, missed, coalesced, skipped, failed, waiting: counts of occurrences; all None if the app has
            neither a store nor a state.
        active: ids of its waiting and running jobs.
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
    """A list of timestamps, earliest first."""

    items: list[str | None]


class ScheduleExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule in words.

    Attributes:
        means: when it is due.
        clock_changes: the handling of local times that do not exist or occur twice.
        next: the next occurrences in the schedule's time zone, even while it is paused; the first may be overdue.
        paused: when it was paused; `note` has the reason.
    """

    name: str
    starts: str
    means: str
    clock_changes: str
    next: list[str]
    paused: str | None
    note: str


class ScheduleRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule for times: one of `cron`, `every` and `at`, and its limits.

    Attributes:
        cron: a cron expression, in the time zone `tz`.
        tz: the time zone. Default: UTC.
        every: a duration, such as "15m".
        at: a single time; it has no limits.
        seconds: whether the cron expression has six fields, the first for seconds.
        dst_gap: whether a time that the clocks skip is due after the gap, or not at all.
        dst_fold: which of two equal times is due when clocks go back.
        both_days: whether a day must match both the day-of-month and the day-of-week field.
        phase: the offset from each multiple of `every`.
        anchor: instead of `phase`, a time that is one of the occurrences.
        start, end: the first and last possible occurrence.
        max_runs: the maximum number of occurrences, counted from `start`.
        exclude: days without occurrences, such as "sat", "12-25" and "2026-04-03".
    """

    cron: ShortText | None = None
    tz: ShortText | None = None
    every: ShortText | float | None = None
    at: Instant | None = None
    seconds: bool | None = None
    dst_gap: DstGap | None = None
    dst_fold: DstFold | None = None
    both_days: bool | None = None
    phase: ShortText | float | None = None
    anchor: Instant | None = None
    start: Instant | None = None
    end: Instant | None = None
    max_runs: int | None = None
    exclude: Annotated[list[ShortText], msgspec.Meta(max_length=1_000)] | None = None


class RuleExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in words.

    Attributes:
        means: when it is due.
        clock_changes: the handling of local times that do not exist or occur twice.
        next: the next occurrences in the rule's time zone.
    """

    means: str
    clock_changes: str
    next: list[str]


class ScheduleFields(ScheduleRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule's rule, its policy, and the options of its jobs.

    Attributes:
        catchup: how to handle missed occurrences.
        late_after: the age from which an occurrence counts as missed. Default: 30 seconds.
        catchup_window: the maximum age of missed occurrences that are caught up. Default: a day.
        catchup_limit: the maximum number of occurrences that `all` emits. Default: 100.
        catchup_rate: the maximum number of missed occurrences per second. Default: 10.
        overlap: how to handle an occurrence while `max_concurrency` earlier ones wait or run.
        on_resume: how to handle the occurrences of a pause.
        jitter: the maximum delay of each occurrence, derived from the schedule's name.
        job: options of its jobs. Default: those of its task or definition.
    """

    catchup: Catchup | None = None
    late_after: ShortText | float | None = None
    catchup_window: ShortText | float | None = None
    catchup_limit: int | None = None
    catchup_rate: int | None = None
    overlap: Overlap | None = None
    max_concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    on_resume: OnResume | None = None
    jitter: ShortText | float | None = None
    job: JobTerms | None = None


class PutScheduleBody(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule to create or replace, with one of `cron`, `every` and `at`.

    Attributes:
        task: the name of a task or definition. A definition's current version is copied.
        args, kwargs: positional and keyword arguments.
    """

    task: ShortText
    args: list[Any] = msgspec.field(default_factory=list[Any])
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class ChangeScheduleBody(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a schedule. Omitted and null fields stay unchanged.

    `every` and `at` replace any other rule; a new cron expression keeps the options of the present one. `job`
    replaces all options of its jobs.

    Attributes:
        task: the name of another task or definition. A definition's current version is copied.
        args, kwargs: new positional or keyword arguments, which replace all old ones.
    """

    task: ShortText | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None


class PutReactionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reaction to ends of stored jobs or runs, to create or replace.

    Attributes:
        task: the task to call, as a stored job. It gets the event, or the list of events of joined conditions.
        when: its condition: `{"kind": "job", "tasks": ["load"], "states": ["failed"]}`, `{"kind": "run", "workflow":
            "nightly", "states": ["failed"]}`, or `parts` that are such conditions, joined by the kind `all_of`,
            `any_of` or `at_least` (with a `count`).
        debounce: a duration without further events before it calls the task.
        limit: the longest wait from its first event to the call; `at_limit` says what happens then.
    """

    task: ShortText
    when: dict[str, Any]
    debounce: ShortText | float | None = None
    limit: ShortText | float | None = None
    at_limit: Literal["drop", "call"] = "drop"


class PauseScheduleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for a pause, shown to others."""

    note: Note = ""


class BackfillBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The period whose occurrences are emitted, again or for the first time.

    Attributes:
        start, end: the first and last possible occurrence; `end` must not be in the future.
        dry_run: only list the occurrences.
    """

    start: Instant
    end: Instant
    dry_run: bool = False


class BackfillView(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill. `run` identifies its jobs; it is "" if nothing is emitted."""

    run: str
    instants: list[str | None]
    has_more: bool
