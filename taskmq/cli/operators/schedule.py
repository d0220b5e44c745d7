"""`taskmq schedule`."""

import heapq
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import tzinfo
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals, open_app, run_with_app
from taskmq.cli.output import note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.cli.typed_values import milliseconds_of
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import ScheduleNotFound, UnsupportedFeature
from taskmq.model.units import LAST_INSTANT
from taskmq.operations.schedule_facts import schedule_facts
from taskmq.schedules.triggers import (
    Cron,
    DstFold,
    DstGap,
    Trigger,
    TriggerExplanation,
    cron,
    explain_trigger,
    instants_after,
    jitter_of,
    local_text,
    zone_of,
)

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.schedules import ScheduleEntry, ScheduleStatus

__all__ = [
    "SCHEDULE_COLUMNS",
    "app",
    "most_due",
    "paused_note",
    "paused_text",
    "print_due",
    "print_explanation",
    "trigger_of_expression",
]

app = App(
    name="schedule",
    help="Schedules: list, show, next, explain, history, pause, resume, run, backfill, add, change, remove.",
    result_action="return_value",
)
# Loaded when they are used, as the commands beside them need less.
for _name, _help in {
    "show": "Show the rule, the policy and the arguments of a schedule.",
    "history": "What a schedule has emitted last, and what it has counted.",
    "pause": "Have a schedule emit nothing until it is resumed.",
    "resume": "Have a paused schedule go on.",
    "run": "Send a call of a schedule's task now.",
    "backfill": "Emit the occurrences of a range of the past.",
    "add": "Make a schedule at run time.",
    "change": "Change a schedule that was made at run time.",
    "remove": "Take a schedule away that was made at run time.",
}.items():
    app.command(f"taskmq.cli.operators.schedule_changes:{_name}", name=_name, help=_help)

SCHEDULE_COLUMNS: Final = ("schedule", "task", "next", "rule")
_PAGE: Final = 500
_MOST_NEXT: Final = 5
_MOST_UNTIL: Final = 1_000
_DUE_COLUMNS: Final = ("schedule", "due", "local")


@app.command(name="list")
@over_http("schedules:list_schedules")
def list_schedules(prefix: str = "", /, *, limit: int = 50, after: str | None = None) -> None:
    """List the schedules of the app (--app) by name, those that were made at run time among them.

    Reactions of the app's tasks come after them.

    Parameters
    ----------
    prefix
        Only those whose names begin so.
    limit
        How many at most.
    after
        Go on behind this name, where a list has ended.
    """
    now = SystemClock().now_ms()
    listed, behind = run_with_app(lambda target: _page(target, prefix, after, limit))
    rows = [
        {
            "schedule": entry.name,
            "task": entry.starts,
            "next": "" if paused else when(_sent(entry, entry.trigger.next_after(now))),
            "rule": entry.trigger.describe(),
            "paused": paused,
            **({} if current_globals().output == "table" else schedule_facts(entry)),
        }
        for entry, paused in listed
    ]
    if behind is None:
        rows += [
            {"schedule": each.name, "task": each.task.name, "next": "", "rule": each.describe(), "paused": ""}
            for each in sorted(open_app().reactions.values(), key=lambda each: each.name)
            if each.name.startswith(prefix)
        ]
    is_any_paused = any(row["paused"] for row in rows)
    print_rows((*SCHEDULE_COLUMNS, "paused") if is_any_paused else SCHEDULE_COLUMNS, rows)
    if behind is not None:
        note(f"there are more: --after {behind}")


@app.command(name="next")
@over_http("schedules:next_instants")
def next_instants(
    names: Annotated[tuple[str, ...], Parameter(show=False)] = (),
    /,
    *,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    after: str | None = None,
    until: str | None = None,
) -> int:
    """List the next occurrences of all schedules, or of the named ones, the earliest first.

    Parameters
    ----------
    names
        Schedules.
    count
        How many occurrences at most: 5 by default, 1,000 with `--until`.
    after
        Begin after this instant instead of now, such as 2027-01-31T09:00+01:00 or +1h.
    until
        List every occurrence up to this instant, such as +1h.
    """
    start = SystemClock().now_ms() if after is None else milliseconds_of("--after", after)
    end = LAST_INSTANT if until is None else milliseconds_of("--until", until)
    most = most_due(count, until)
    try:
        due = run_with_app(lambda target: _look_ahead(target, names, start=start, end=end, count=most))
    except ScheduleNotFound as error:
        note(str(error))
        return NOT_FOUND
    rows = [
        {"schedule": name, "due": when(instant), "local": local_text(instant, zone)} for instant, name, zone in due
    ]
    print_due(rows, most=most, until=until)
    return OK


def most_due(count: int | None, until: str | None) -> int:
    """The largest number of occurrences that `schedule next` prints."""
    if count is not None:
        return count
    return _MOST_UNTIL if until is not None else _MOST_NEXT


def print_due(rows: Sequence[Mapping[str, Any]], *, most: int, until: str | None) -> None:
    """Print the first `most` occurrences, and how to get the rest of what is due until then."""
    print_rows(_DUE_COLUMNS, rows[:most])
    if until is not None and len(rows) > most:
        note(f"only the first {most:,} occurrences until {until} are listed: name some schedules, or use a larger -n")


@app.command
@over_http("schedules:explain")
def explain(
    rule: str,
    /,
    *,
    tz: str = "UTC",
    seconds: Annotated[bool, Parameter(negative="")] = False,
    dst_gap: DstGap = "run_after",
    dst_fold: DstFold = "first",
    count: Annotated[int, Parameter(name=["--count", "-n"])] = 5,
) -> int:
    """Say in words what a cron expression or a schedule means, and when it is due next.

    Parameters
    ----------
    rule
        A cron expression, in quotes, or the name of a schedule, or of a reaction, of the app (--app).
    tz
        The zone whose clocks the expression goes by.
    seconds
        The expression has six fields, the first for the seconds.
    dst_gap
        What becomes of a time that is left out as clocks are set forward.
    dst_fold
        Which one is due of a time that comes twice.
    count
        How many of the next instants are shown.
    """
    facts: dict[str, Any] = {"expression": rule}
    trigger = trigger_of_expression(rule, tz=tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold)
    if trigger is None:
        try:
            ((entry, paused),) = run_with_app(lambda target: _collect(target, [rule]))
        except ScheduleNotFound:
            if rule in open_app().reactions:
                from taskmq.cli.operators.reactions import explain_reaction

                explain_reaction(rule)
                return OK
            note(f"{rule!r} is no cron expression, and no schedule of the app is called that")
            return NOT_FOUND
        trigger = entry.trigger
        facts = {"schedule": entry.name, "task": entry.starts}
        if paused:
            facts["paused"] = paused_note(rule, paused)
    print_explanation(facts, explain_trigger(trigger, after=SystemClock().now_ms(), count=count))
    return OK


def print_explanation(facts: dict[str, Any], words: TriggerExplanation) -> None:
    """Print what a trigger means, after what else is known of it."""
    following = "\n".join(f"  {each}" for each in words.next) if current_globals().output == "table" else words.next
    print_record({**facts, "means": words.means, "clock changes": words.clock_changes, "next": following})


def paused_note(name: str, since: str) -> str:
    """What to say of a schedule that is paused."""
    return f"{since}: nothing is emitted before `taskmq schedule resume {name}`"


def trigger_of_expression(rule: str, *, tz: str, seconds: bool, dst_gap: DstGap, dst_fold: DstFold) -> Trigger | None:
    """The trigger of a cron expression; None for what is the name of a schedule, such as `@acme:nightly`."""
    is_word = len(rule.split()) == 1
    if is_word and (not rule.startswith("@") or ":" in rule):
        return None
    trigger = cron(rule, tz=tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold)
    if isinstance(trigger, Cron) and trigger != trigger.hashed_by("another"):
        note("H is 0 here, as far as it can be; a schedule computes it from its name")
    return trigger


async def _each(target: "TaskMQ", names: Sequence[str] = ()) -> "AsyncIterator[tuple[ScheduleEntry, str]]":
    """All schedules, or those that are named; since when and why each is paused, "" where it is not.

    Raises:
        ScheduleNotFound: there is none of a name.
    """
    schedules = target.schedules
    try:
        for name in names:
            yield await schedules.aentry(name), paused_text(await schedules.astatus(name))
        after = None if names else ""
        while after is not None:
            page = await schedules.alist(after=after, limit=_PAGE)
            for entry, status in page.schedules:
                yield entry, paused_text(status)
            after = page.after
    except UnsupportedFeature as error:
        note(f"only the schedules of the code: {error}")
        for name in names or schedules:
            if name not in schedules:
                raise ScheduleNotFound(f"no schedule is called {name!r}; `taskmq schedule list` shows them") from None
            yield schedules[name], ""


async def _collect(target: "TaskMQ", names: Sequence[str]) -> "list[tuple[ScheduleEntry, str]]":
    return [one async for one in _each(target, names)]


async def _page(
    target: "TaskMQ", prefix: str, after: str | None, limit: int
) -> "tuple[list[tuple[ScheduleEntry, str]], str | None]":
    """Some schedules, since when and why each is paused; and where the next page begins."""
    try:
        page = await target.schedules.alist(prefix, after=after, limit=limit)
    except UnsupportedFeature:
        return [one for one in await _collect(target, []) if one[0].name.startswith(prefix)], None
    return [(entry, paused_text(status)) for entry, status in page.schedules], page.after


async def _look_ahead(
    target: "TaskMQ", names: Sequence[str], *, start: int, end: int, count: int
) -> list[tuple[int, str, tzinfo]]:
    """The first `count` + 1 instants after `start`, up to `end` (both ms), each with its schedule and its zone."""
    due: list[tuple[int, str, tzinfo]] = []
    async for entry, paused in _each(target, names):
        if paused:
            note(f"schedule {entry.name} is paused {paused}: nothing of it is due")
            continue
        instants = takewhile(lambda instant: instant <= end, instants_after(entry.trigger, start))
        due += [(instant, entry.name, zone_of(entry.trigger)) for instant in islice(instants, count + 1)]
        # Of millions of schedules not all their instants are kept.
        due = heapq.nsmallest(count + 1, due, key=lambda each: each[:2])
    return due


def paused_text(status: "ScheduleStatus") -> str:
    """Since when and why a schedule is paused; "" where it is not."""
    if status.paused is None:
        return ""
    since = status.paused.isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"since {since} ({status.note})" if status.note else f"since {since}"


def _sent(entry: "ScheduleEntry", instant: int | None) -> int | None:
    return None if instant is None else instant + jitter_of(entry.name, entry.policy.jitter)
