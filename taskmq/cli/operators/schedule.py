"""`taskmq schedule`."""

import asyncio
from datetime import datetime, tzinfo
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals, open_app
from taskmq.cli.output import note, print_record, print_rows, when
from taskmq.cli.server_link import over_http
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption, UnsupportedFeature
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
    from taskmq.schedules import ScheduleEntry, ScheduleStatus

__all__ = [
    "DUE_COLUMNS",
    "SCHEDULE_COLUMNS",
    "app",
    "paused_note",
    "paused_text",
    "print_explanation",
    "trigger_of_expression",
]

app = App(
    name="schedule",
    help="Schedules: list, next, explain, history, pause, resume, run, backfill, add, remove.",
    result_action="return_value",
)
# Loaded when they are used, as the commands beside them need less.
for _name, _help in {
    "history": "What a schedule has emitted last, and what it has counted.",
    "pause": "Have a schedule emit nothing until it is resumed.",
    "resume": "Have a paused schedule go on.",
    "run": "Send a call of a schedule's task now.",
    "backfill": "Emit the occurrences of a range of the past.",
    "add": "Make a schedule at run time.",
    "remove": "Take a schedule away that was made at run time.",
}.items():
    app.command(f"taskmq.cli.operators.schedule_changes:{_name}", name=_name, help=_help)

SCHEDULE_COLUMNS: Final = ("schedule", "task", "next", "rule")
DUE_COLUMNS: Final = ("schedule", "due", "local")


@app.command(name="list")
@over_http("schedules:list_schedules")
def list_schedules() -> None:
    """List the schedules of the app (--app), those that were made at run time among them, with what is due next.

    Reactions of the app's tasks come after them.
    """
    now = SystemClock().now_ms()
    entries, paused = _entries()
    rows = [
        {
            "schedule": entry.name,
            "task": entry.starts,
            "next": "" if entry.name in paused else when(_sent(entry, entry.trigger.next_after(now))),
            "rule": entry.trigger.describe(),
            "paused": paused.get(entry.name, ""),
        }
        for entry in entries.values()
    ]
    rows.sort(key=lambda row: (row["next"] == "", row["next"], row["schedule"]))
    rows += [
        {"schedule": each.name, "task": each.task.name, "next": "", "rule": each.describe(), "paused": ""}
        for each in sorted(open_app().reactions.values(), key=lambda each: each.name)
    ]
    print_rows((*SCHEDULE_COLUMNS, "paused") if paused else SCHEDULE_COLUMNS, rows)


@app.command(name="next")
@over_http("schedules:next_instants")
def next_instants(
    names: Annotated[tuple[str, ...], Parameter(show=False)] = (),
    /,
    *,
    count: Annotated[int, Parameter(name=["--count", "-n"])] = 5,
    after: str | None = None,
) -> int:
    """List what is due next of all schedules, or of those that are named, the earliest first.

    Parameters
    ----------
    names
        Schedules.
    count
        How many.
    after
        From this instant on instead of now, such as 2027-01-31T09:00+01:00.
    """
    entries, paused = _entries()
    if unknown := [name for name in names if name not in entries]:
        note(f"no schedule is called {unknown[0]!r}; `taskmq schedule list` shows them")
        return NOT_FOUND
    start = SystemClock().now_ms() if after is None else _instant(after)
    due: list[tuple[int, str, tzinfo]] = []
    for name in names or entries:
        if name in paused:
            note(f"schedule {name} is paused {paused[name]}: nothing of it is due")
            continue
        trigger = entries[name].trigger
        due += [(instant, name, zone_of(trigger)) for instant in islice(instants_after(trigger, start), count)]
    due.sort(key=lambda each: each[:2])
    print_rows(
        DUE_COLUMNS,
        [
            {"schedule": name, "due": when(instant), "local": local_text(instant, zone)}
            for instant, name, zone in due[:count]
        ],
    )
    return OK


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
        entries, paused = _entries()
        if rule not in entries and rule in open_app().reactions:
            from taskmq.cli.operators.reactions import explain_reaction

            explain_reaction(rule)
            return OK
        if rule not in entries:
            note(f"{rule!r} is no cron expression, and no schedule of the app is called that")
            return NOT_FOUND
        entry = entries[rule]
        trigger = entry.trigger
        facts = {"schedule": entry.name, "task": entry.starts}
        if rule in paused:
            facts["paused"] = paused_note(rule, paused[rule])
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
    """The trigger of a cron expression; None for what is the name of a schedule."""
    if not rule.startswith("@") and len(rule.split()) == 1:
        return None
    trigger = cron(rule, tz=tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold)
    if isinstance(trigger, Cron) and trigger != trigger.hashed_by("another"):
        note("H is 0 here, as far as it can be; a schedule computes it from its name")
    return trigger


def _entries() -> "tuple[dict[str, ScheduleEntry], dict[str, str]]":
    """All schedules, and since when and why those are paused that are."""
    target = open_app()

    async def look() -> "tuple[dict[str, ScheduleEntry], dict[str, ScheduleStatus]]":
        async with target:
            return await target.schedules.aall(), await target.schedules.astatuses()

    try:
        entries, statuses = asyncio.run(look())
    except UnsupportedFeature as error:
        note(f"only the schedules of the code: {error}")
        return dict(target.schedules), {}
    return entries, {name: text for name, status in statuses.items() if (text := paused_text(status))}


def paused_text(status: "ScheduleStatus") -> str:
    """Since when and why a schedule is paused; "" where it is not."""
    if status.paused is None:
        return ""
    since = status.paused.isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"since {since} ({status.note})" if status.note else f"since {since}"


def _sent(entry: "ScheduleEntry", instant: int | None) -> int | None:
    return None if instant is None else instant + jitter_of(entry.name, entry.policy.jitter)


def _instant(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InvalidOption(f"--after {text!r} is no instant: it looks like 2027-01-31T09:00+01:00")
    return round(found.timestamp() * 1000)
