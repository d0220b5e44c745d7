"""`taskmq schedule`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
from cyclopts import Parameter

from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.noun import Noun
from taskmq.cli.output import note, print_record, print_rows
from taskmq.cli.server_link import Api, ask, first_items, show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import instant_of
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption, ReactionNotFound, ScheduleNotFound
from taskmq.model.keys import split_tenant_key
from taskmq.schedules.triggers import (
    Cron,
    DstFold,
    DstGap,
    Trigger,
    cron,
    explain_trigger,
    local_text,
    zone_of,
)

if TYPE_CHECKING:
    from taskmq.api.schedules import ReactionLine, ScheduleExplanation, ScheduleLine, ScheduleList
    from taskmq.cli.server_link import Listed

app = Noun(
    name="schedule",
    help="Manage schedules: list, show, next, explain, history, pause, resume, run, backfill, add, change, remove.",
)
# Loaded on use, since the other commands need less.
for _name, _help in {
    "show": "Show the rule, the policy and the arguments of a schedule.",
    "history": "Show the latest occurrences and the counters of a schedule.",
    "pause": "Pause a schedule until it is resumed.",
    "resume": "Resume a paused schedule.",
    "run": "Run a schedule's task now.",
    "backfill": "Run the occurrences of a past range again.",
    "add": "Add a schedule at run time.",
    "change": "Change a schedule that was added at run time.",
    "remove": "Remove a schedule that was added at run time.",
}.items():
    app.command(f"taskmq.cli.operators.schedule_changes:{_name}", name=_name, help=_help)

_COLUMNS: Final = ("schedule", "task", "next", "rule")
# A scheduler that runs takes less.
_OVERDUE: Final = timedelta(seconds=30)
_FIRST_PAGE: Final = 10
_PAGE: Final = 100
_MOST_NEXT: Final = 5
_MOST_UNTIL: Final = 1_000
_DUE_COLUMNS: Final = ("schedule", "due", "local")


@app.command(name="list")
def list_schedules(prefix: str = "", /, *, limit: int = 50, after: str | None = None) -> None:
    """List the schedules of the app (--app) by name, including those added at run time.

    The reactions of the app's tasks follow.

    Args:
        prefix: Only names with this prefix.
        limit: Maximum number of schedules.
        after: Continue after this name, printed at the end of an earlier list.
    """
    reactions: list[ReactionLine] = []

    async def run(api: Api) -> "Listed[ScheduleLine]":
        async def page(*, limit: int, cursor: str | None) -> "ScheduleList":
            found = await api.schedules.page(prefix, limit=limit, cursor=cursor)
            # Reactions are on the last page.
            reactions.extend(found.reactions)
            return found

        return await first_items(page, limit, after=after)

    found = ask(run)
    columns = (*_COLUMNS, "paused") if any(one.paused for one in found.items) else _COLUMNS
    show_rows(columns, [*found.items, *reactions], _row)
    if found.next is not None:
        note(f"there are more: --after {found.next}")


@app.command(name="next")
def next_instants(
    names: Annotated[tuple[str, ...], Parameter(show=False)] = (),
    /,
    *,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    after: str | None = None,
    until: str | None = None,
) -> int:
    """List the next occurrences of all or the named schedules, earliest first.

    Args:
        names: The schedules. Default: all.
        count: Maximum number of occurrences: 5 by default, 1,000 with `--until`.
        after: Begin after this instant instead of now, such as 2027-01-31T09:00+01:00 or +1h.
        until: List every occurrence up to this instant, such as +1h.
    """
    start = None if after is None else instant_of("--after", after)
    end = None if until is None else instant_of("--until", until).astimezone(UTC)
    most = count if count is not None else _MOST_NEXT if until is None else _MOST_UNTIL
    try:
        due = ask(lambda api: _look_ahead(api, names, start=start, end=end, most=most))
    except ScheduleNotFound as error:
        note(str(error))
        return NOT_FOUND
    rows = [
        {
            "schedule": name,
            "due": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "local": _format_local(at, tz),
        }
        for at, name, tz in due
    ]
    print_rows(_DUE_COLUMNS, rows[:most])
    if until is not None and len(rows) > most:
        note(f"listed only the first {most:,} occurrences until {until}: name schedules, or raise -n")
    return OK


@app.command
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
    """Explain in words what a cron expression or a schedule means, and when it is due next.

    Args:
        rule: A cron expression in quotes, or the name of a schedule or reaction of the app (--app).
        tz: Time zone of the expression.
        seconds: The expression has six fields, the first for seconds.
        dst_gap: What happens to a time skipped when clocks go forward.
        dst_fold: Which occurrence of a time repeated when clocks go back is used.
        count: Number of next occurrences to show.
    """
    trigger = _parse_expression(rule, tz=tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold)
    if trigger is not None:
        words = explain_trigger(trigger, after=SystemClock().now_ms(), count=count)
        print_record({"expression": rule, **_print_explanation(words.means, words.clock_changes, words.next)})
        return OK
    try:
        found = ask(lambda api: api_of_tenant(api, rule).schedules.explain(split_tenant_key(rule)[1], count=count))
    except ScheduleNotFound:
        from taskmq.cli.operators.reactions import show

        with suppress(ReactionNotFound):
            show(rule)
            return OK
        note(f"{rule!r} is neither a cron expression nor a schedule of the app")
        return NOT_FOUND

    def record() -> dict[str, Any]:
        facts = {"schedule": rule, "task": found.starts}
        if found.paused is not None:
            facts["paused"] = f"{paused_text(found)}; resume it with `taskmq schedule resume {rule}`"
        return {**facts, **_print_explanation(found.means, found.clock_changes, [*map(_due_text, found.next)])}

    show_record(found, record)
    return OK


def _print_explanation(means: str, clock_changes: str, following: list[str]) -> dict[str, Any]:
    is_table = current_globals().output == "table"
    shown = "\n".join(f"  {each}" for each in following) if is_table else following
    return {"means": means, "clock changes": clock_changes, "next": shown}


def _parse_expression(rule: str, *, tz: str, seconds: bool, dst_gap: DstGap, dst_fold: DstFold) -> Trigger | None:
    """Return the trigger of a cron expression, or None for the name of a schedule, such as `@acme:nightly`."""
    is_word = len(rule.split()) == 1
    if is_word and (not rule.startswith("@") or ":" in rule):
        return None
    trigger = cron(rule, tz=tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold)
    if isinstance(trigger, Cron) and trigger != trigger.with_hash_id("another"):
        note("H is shown as 0 where possible; a schedule derives it from its name")
    return trigger


def api_of_tenant(api: Api, name: str) -> Api:
    """Return the API for the tenant in a name such as @acme:nightly."""
    tenant, _ = split_tenant_key(name)
    return api.for_tenant(tenant) if tenant else api


def paused_text(one: "ScheduleLine | ScheduleExplanation") -> str:
    """Describe since when and why a schedule is paused; "" if it is not."""
    if one.paused is None:
        return ""
    since = f"since {text_of_instant(one.paused)}"
    return f"{since} ({one.note})" if one.note else since


def _row(one: "ScheduleLine | ReactionLine") -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.structs.asdict(one)
    is_schedule = "paused" in facts
    return {
        "schedule": one.name,
        "task": one.starts,
        "next": _due_text(text_of_instant(facts["next"])) if is_schedule else "",
        "rule": one.rule,
        "paused": paused_text(cast("ScheduleLine", one)) if is_schedule else "",
    }


def _due_text(instant: str) -> str:
    """Return the text of an instant, marked if its occurrence is overdue."""
    is_overdue = instant and datetime.fromisoformat(instant) < datetime.now(UTC) - _OVERDUE
    return f"{instant} (overdue)" if is_overdue else instant


async def _lines(api: Api, names: Sequence[str]) -> "AsyncIterator[ScheduleLine]":
    """Yield all or the named schedules; print notes about missing ones."""
    is_of_code_alone = False
    for name in names:
        found = await api_of_tenant(api, name).schedules.get(split_tenant_key(name)[1])
        is_of_code_alone = found.fired is None
        yield msgspec.structs.replace(found, name=name)
    cursor = None if names else ""
    while cursor is not None:
        page = await api.schedules.page(limit=_PAGE, cursor=cursor)
        is_of_code_alone = page.is_of_code_alone
        for line in page.items:
            yield line
        cursor = page.next
    if is_of_code_alone:
        note("only schedules defined in code: the app has neither a job store nor a state for others")


async def _look_ahead(
    api: Api, names: Sequence[str], *, start: datetime | None, end: datetime | None, most: int
) -> list[tuple[datetime, str, str]]:
    """Return the first `most` + 1 instants from `start` to `end`, each with its schedule and zone."""
    due: list[tuple[datetime, str, str]] = []
    async for line in _lines(api, names):
        if line.paused:
            note(f"schedule {line.name} is paused {paused_text(line)}; its occurrences are not listed")
            continue
        # None of its occurrences can be among the first: the jitter only delays an occurrence.
        latest = due[-1][0] if len(due) > most else end
        if start is None and latest is not None and _is_due_after(line, latest):
            continue
        instants = await _instants(api, line.name, start=start, end=end, most=most + 1)
        # Bound the memory, as there may be millions of schedules.
        due = sorted([*due, *((at, line.name, line.tz) for at in instants)])[: most + 1]
    return due


def _is_due_after(line: "ScheduleLine", instant: datetime) -> bool:
    return line.next is None or datetime.fromisoformat(line.next) - timedelta(seconds=line.jitter) > instant


async def _instants(
    api: Api, name: str, *, start: datetime | None, end: datetime | None, most: int
) -> list[datetime]:
    """Return the instants at which a schedule is due, reading page by page."""
    own, own_name = api_of_tenant(api, name), split_tenant_key(name)[1]
    found: list[datetime] = []
    size = _FIRST_PAGE
    while len(found) < most:
        told = await own.schedules.next(own_name, count=size, after=start)
        page = [datetime.fromisoformat(each) for each in told if each]
        page = [at for at in page if end is None or at <= end]
        found += page
        if len(page) < size:
            break
        start, size = page[-1], _PAGE
    return found[:most]


def _format_local(at: datetime, tz: str) -> str:
    """Format the instant in a time zone, or in UTC if this machine does not know the zone."""
    instant = round(at.timestamp() * 1000)
    try:
        return local_text(instant, zone_of(Cron("0 0 * * *", tz)))
    except InvalidOption:
        return local_text(instant, UTC)
