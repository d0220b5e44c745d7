"""`taskmq schedule` through a server."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final

import msgspec

from taskmq.api.schedules import ChangeScheduleBody, OccurrenceView, PutScheduleBody, ScheduleLine, ScheduleView
from taskmq.cli.exits import NOT_FOUND, OK
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.schedule import (
    SCHEDULE_COLUMNS,
    most_due,
    paused_note,
    print_due,
    print_explanation,
    trigger_of_expression,
)
from taskmq.cli.operators.schedule_changes import OCCURRENCE_COLUMNS, trigger_of
from taskmq.cli.output import note
from taskmq.cli.server_link import show_record, show_rows, text_of_instant
from taskmq.cli.typed_values import array_of, instant_of, object_of
from taskmq.contracts.system_clock import SystemClock
from taskmq.errors import InvalidOption, ScheduleNotFound
from taskmq.http import Client
from taskmq.model.keys import split_tenant_key
from taskmq.schedules.policy import Catchup, OnResume, Overlap
from taskmq.schedules.triggers import (
    Cron,
    DstFold,
    DstGap,
    TriggerExplanation,
    explain_trigger,
    local_text,
    zone_of,
)

__all__ = [
    "add",
    "change",
    "explain",
    "history",
    "list_schedules",
    "next_instants",
    "show",
]

_FIRST_PAGE: Final = 10
_PAGE: Final = 100
# What is shown of a schedule beside what is said of it.
_OF_LISTS: Final = frozenset({"name", "tenant", "starts", "rule", "is_dynamic", "next", "paused", "note"})


def list_schedules(client: Client, *, prefix: str, limit: int, after: str | None) -> int:
    page = client.schedules.page(prefix, limit=limit, cursor=after)
    is_any_paused = any(one.paused for one in page.items)
    columns = (*SCHEDULE_COLUMNS, "paused") if is_any_paused else SCHEDULE_COLUMNS

    def row(one: ScheduleLine) -> dict[str, Any]:
        return {
            "schedule": one.name,
            "task": one.starts,
            "next": text_of_instant(one.next),
            "rule": one.rule,
            "paused": _paused(one),
        }

    show_rows(columns, page.items, row)
    if page.next is not None:
        note(f"there are more: --after {page.next}")
    return OK


def next_instants(
    client: Client, *, names: Sequence[str], count: int | None, after: str | None, until: str | None
) -> int:
    start = None if after is None else instant_of("--after", after)
    end = None if until is None else instant_of("--until", until).astimezone(UTC)
    most = most_due(count, until)
    due: list[tuple[datetime, str, str]] = []
    for line in map(client.schedules.get, names) if names else client.schedules.list():
        if line.paused:
            note(f"schedule {line.name} is paused {_paused(line)}: nothing of it is due")
            continue
        # None of its occurrences is among the first ones: what is sent may be later than what is due, by the jitter.
        latest = due[-1][0] if len(due) > most else end
        if start is None and latest is not None and _is_due_after(line, latest):
            continue
        instants = islice(_instants(client, line.name, after=start, until=end), most + 1)
        due = sorted([*due, *((at, line.name, line.tz) for at in instants)])[: most + 1]
    rows = [
        {"schedule": name, "due": at.isoformat(timespec="seconds").replace("+00:00", "Z"), "local": _local(at, tz)}
        for at, name, tz in due
    ]
    print_due(rows, most=most, until=until)
    return OK


def _is_due_after(line: ScheduleLine | ScheduleView, instant: datetime) -> bool:
    return line.next is None or datetime.fromisoformat(line.next) - timedelta(seconds=line.jitter) > instant


def _instants(client: Client, name: str, *, after: datetime | None, until: datetime | None) -> Iterator[datetime]:
    """The instants at which a schedule is due, asked for page by page."""
    size = _FIRST_PAGE
    while True:
        found = [
            datetime.fromisoformat(each) for each in client.schedules.next(name, count=size, after=after) if each
        ]
        yield from takewhile(lambda at: until is None or at <= until, found)
        if len(found) < size or (until is not None and found[-1] > until):
            return
        after, size = found[-1], _PAGE


def explain(
    client: Client, *, rule: str, tz: str, seconds: bool, dst_gap: DstGap, dst_fold: DstFold, count: int
) -> int:
    trigger = trigger_of_expression(rule, tz=tz, seconds=seconds, dst_gap=dst_gap, dst_fold=dst_fold)
    if trigger is not None:
        words = explain_trigger(trigger, after=SystemClock().now_ms(), count=count)
        print_explanation({"expression": rule}, words)
        return OK
    own, own_name = _of_tenant(client, rule)
    try:
        found = own.schedules.explain(own_name, count=count)
    except ScheduleNotFound:
        note(f"{rule!r} is no cron expression, and no schedule of the app is called that")
        return NOT_FOUND
    if current_globals().output != "table":
        show_record(found, dict)
        return OK
    facts = {"schedule": rule, "task": found.starts}
    if found.paused is not None:
        since = f"since {text_of_instant(found.paused)}" + (f" ({found.note})" if found.note else "")
        facts["paused"] = paused_note(rule, since)
    print_explanation(facts, TriggerExplanation(found.means, found.clock_changes, found.next))
    return OK


def show(client: Client, *, name: str) -> int:
    found = client.schedules.get(name)

    def record() -> dict[str, Any]:
        facts = msgspec.structs.asdict(found)
        shown = {"schedule": name, "starts": facts["starts"], "rule": facts["rule"]}
        return shown | {key: facts[key] for key in ScheduleLine.__struct_fields__ if key not in _OF_LISTS}

    show_record(found, record)
    return OK


def history(client: Client, *, name: str) -> int:
    found = client.schedules.get(name)
    if current_globals().output == "table":
        show_rows(OCCURRENCE_COLUMNS, found.history, _occurrence_row)
    else:
        show_record(found, dict)
    counts = ", ".join(f"{getattr(found, what)} {what}" for what in ("fired", "late", "missed", "skipped", "failed"))
    if found.paused is None:
        state = f"next {found.next}" if found.next else "never due again"
    else:
        state = f"paused {_paused(found)}"
    waiting = f", {found.waiting} waiting for earlier ones to end" if found.waiting else ""
    note(f"{name}: {state}; {counts}{waiting}")
    return OK


def add(
    client: Client,
    *,
    name: str,
    task: str,
    expression: str | None,
    tz: str,
    period: str | None,
    at: str | None,
    given_args: str,
    given_kwargs: str,
    catchup: Catchup | None,
    overlap: Overlap | None,
    max_concurrency: int | None,
    on_resume: OnResume | None,
    jitter: str | None,
) -> int:
    trigger = trigger_of(expression, tz, period, at)
    body = PutScheduleBody(
        task=task,
        args=array_of("--args", given_args),
        kwargs=object_of("--kwargs", given_kwargs),
        cron=expression,
        tz=tz,
        every=period,
        at=None if at is None else instant_of("--at", at),
        catchup=catchup,
        overlap=overlap,
        max_concurrency=max_concurrency,
        on_resume=on_resume,
        jitter=jitter,
    )
    own, own_name = _of_tenant(client, name)
    own.schedules.add(own_name, body)
    note(f"schedule {name} calls {task}: {trigger.describe()}")
    return OK


def change(
    client: Client,
    *,
    name: str,
    task: str | None,
    expression: str | None,
    tz: str | None,
    period: str | None,
    at: str | None,
    given_args: str | None,
    given_kwargs: str | None,
    catchup: Catchup | None,
    overlap: Overlap | None,
    max_concurrency: int | None,
    on_resume: OnResume | None,
    jitter: str | None,
) -> int:
    body = ChangeScheduleBody(
        task=task,
        args=None if given_args is None else array_of("--args", given_args),
        kwargs=None if given_kwargs is None else object_of("--kwargs", given_kwargs),
        cron=expression,
        tz=tz,
        every=period,
        at=None if at is None else instant_of("--at", at),
        catchup=catchup,
        overlap=overlap,
        max_concurrency=max_concurrency,
        on_resume=on_resume,
        jitter=jitter,
    )
    own, own_name = _of_tenant(client, name)
    found = own.schedules.change(own_name, body)
    note(f"schedule {name} calls {found.starts}: {found.rule}")
    return OK


def _of_tenant(client: Client, name: str) -> tuple[Client, str]:
    """The client of the tenant that a name such as @acme:nightly says, and the name that the tenant has for it."""
    tenant, own_name = split_tenant_key(name)
    return (client.for_tenant(tenant), own_name) if tenant else (client, name)


def _local(at: datetime, tz: str) -> str:
    """The instant by the clocks of a zone, or in UTC where this machine does not know it."""
    instant = round(at.timestamp() * 1000)
    try:
        return local_text(instant, zone_of(Cron("0 0 * * *", tz)))
    except InvalidOption:
        return local_text(instant, UTC)


def _occurrence_row(one: OccurrenceView) -> dict[str, Any]:
    late = ""
    if one.scheduled_for is not None and one.emitted is not None:
        span = datetime.fromisoformat(one.emitted) - datetime.fromisoformat(one.scheduled_for)
        late = f"{span.total_seconds():.3f}"
    return {"scheduled_for": one.scheduled_for, "emitted": one.emitted, "late": late, "kind": one.kind}


def _paused(one: ScheduleLine | ScheduleView) -> str:
    if one.paused is None:
        return ""
    since = text_of_instant(one.paused)
    return f"since {since} ({one.note})" if one.note else f"since {since}"
