"""The commands that change schedules (pause, resume, run, backfill, add, change, remove), and `show`."""

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from cyclopts import Parameter

from taskmq.cli.actor import audited, change_with_app
from taskmq.cli.globals import current_globals, run_with_app
from taskmq.cli.operators.schedule import paused_text
from taskmq.cli.output import confirmed, note, print_record, print_rows
from taskmq.cli.server_link import Api, ask, over_http, show_record
from taskmq.cli.typed_values import instant_of
from taskmq.errors import InvalidOption
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.operations.schedule_facts import changed_trigger, schedule_facts
from taskmq.schedules.policy import Catchup, OnResume, Overlap
from taskmq.schedules.triggers import Trigger, cron, every, once, zone_of

if TYPE_CHECKING:
    from taskmq.app import TaskMQ
    from taskmq.schedules import ScheduleEntry, Schedules
    from taskmq.tasks.task import Task

__all__ = [
    "OCCURRENCE_COLUMNS",
    "add",
    "backfill",
    "change",
    "history",
    "pause",
    "remove",
    "resume",
    "run",
    "show",
    "trigger_of",
]

T = TypeVar("T")

_INSTANT_COLUMNS: Final = ("scheduled_for",)
_COUNTS: Final = ("fired", "late", "missed", "coalesced", "skipped", "failed")
OCCURRENCE_COLUMNS: Final = ("scheduled_for", "emitted", "late", "kind")


@audited
def pause(name: str, /, *, reason: Annotated[str, Parameter(name="--note")] = "") -> None:
    """Have a schedule emit nothing until it is resumed.

    Parameters
    ----------
    name
        The schedule.
    reason
        Why, for others to see.
    """
    own_name = split_tenant_key(name)[1]
    ask(lambda api: _of_tenant(api, name).schedules.pause(own_name, note=reason))
    note(f"schedule {name} is paused; `taskmq schedule resume {name}` goes on")


@audited
def resume(name: str, /) -> None:
    """Have a paused schedule go on; its on_resume says what becomes of the occurrences of the pause.

    Parameters
    ----------
    name
        The schedule.
    """
    own_name = split_tenant_key(name)[1]
    ask(lambda api: _of_tenant(api, name).schedules.resume(own_name))
    note(f"schedule {name} goes on")


@audited
def run(name: str, /) -> None:
    """Send a call of a schedule's task now, whatever the schedule says, and print the job's id.

    Parameters
    ----------
    name
        The schedule.
    """
    tenant, own_name = split_tenant_key(name)
    job = ask(lambda api: _of_tenant(api, name).schedules.run(own_name))
    print_record({"job": tenant_key(tenant or None, job)})


@audited
def backfill(
    name: str,
    /,
    *,
    start: Annotated[str, Parameter(name="--from")],
    end: Annotated[str, Parameter(name="--to")],
    dry_run: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Emit the occurrences of a range of the past, again or for the first time; needs a running beat or scheduler.

    Parameters
    ----------
    name
        The schedule.
    start
        The first instant that may be one, such as 2027-01-31T09:00+01:00.
    end
        The last.
    dry_run
        Only list them.
    """
    first, last = instant_of("--from", start), instant_of("--to", end)
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: _of_tenant(api, name).schedules.backfill(own_name, first, last, dry_run=dry_run))
    if current_globals().output == "table":
        print_rows(_INSTANT_COLUMNS, [{"scheduled_for": instant} for instant in found.instants])
    else:
        show_record(found, dict)
    more = " or more" if found.has_more else ""
    what = "would be" if dry_run else "are being"
    note(f"{len(found.instants)}{more} occurrences of {name} {what} emitted")


@over_http("schedules:show")
def show(name: str, /) -> None:
    """Show a schedule: its rule, what becomes of late occurrences, and its arguments.

    Parameters
    ----------
    name
        The schedule.
    """
    entry = _ask(lambda schedules: schedules.aentry(name))
    said = {"schedule": name, "starts": entry.starts, "rule": entry.trigger.describe()}
    print_record({**said, "tz": str(zone_of(entry.trigger)), **schedule_facts(entry)})


@over_http("schedules:history")
def history(name: str, /) -> None:
    """Show what a schedule has emitted last, and what it has counted.

    Parameters
    ----------
    name
        The schedule.
    """
    status = _ask(lambda schedules: schedules.astatus(name))
    rows = [
        {
            "scheduled_for": _text(one.scheduled_for),
            "emitted": _text(one.emitted),
            "late": f"{(one.emitted - one.scheduled_for).total_seconds():.3f}",
            "kind": one.kind,
        }
        for one in status.history
    ]
    print_rows(OCCURRENCE_COLUMNS, rows)
    counts = ", ".join(
        f"{getattr(status, what)} {what}" for what in ("fired", "late", "missed", "coalesced", "skipped", "failed")
    )
    if status.paused is None:
        state = f"next {_text(status.next)}" if status.next else "never due again"
    else:
        state = f"paused {paused_text(status)}"
    waiting = f", {status.waiting} waiting for earlier ones to end" if status.waiting else ""
    note(f"{name}: {state}; {counts}{waiting}")


@audited
@over_http("schedules:add")
def add(
    name: str,
    task: str,
    /,
    *,
    expression: Annotated[str | None, Parameter(name="--cron")] = None,
    tz: str = "UTC",
    period: Annotated[str | None, Parameter(name="--every")] = None,
    at: str | None = None,
    given_args: Annotated[str, Parameter(name="--args")] = "[]",
    given_kwargs: Annotated[str, Parameter(name="--kwargs")] = "{}",
    catchup: Catchup | None = None,
    overlap: Overlap | None = None,
    max_concurrency: int | None = None,
    on_resume: OnResume | None = None,
    jitter: str | None = None,
) -> None:
    """Call a task of the app (--app) whenever the schedule says from now on, until it is removed.

    Parameters
    ----------
    name
        What the schedule is called from now on. With a job store @acme:nightly is one of tenant acme.
    task
        The task's name; with a job store, that of a definition, too.
    expression
        When: a cron expression, in quotes.
    tz
        The zone whose clocks it goes by.
    period
        Or how often, such as 30s.
    at
        Or once, at this instant, such as 2027-01-31T09:00+01:00.
    given_args
        The arguments, as a JSON array.
    given_kwargs
        The arguments by name, as a JSON object.
    catchup
        What becomes of occurrences that were not emitted in time.
    overlap
        What becomes of an occurrence while earlier ones run.
    max_concurrency
        How many may run at a time, where overlap limits them.
    on_resume
        What becomes of the occurrences of a pause.
    jitter
        Emit each later by a time up to this, such as 5m, which follows from the schedule's name.
    """
    trigger = trigger_of(expression, tz, period, at)
    options = _said(
        catchup=catchup, overlap=overlap, max_concurrency=max_concurrency, on_resume=on_resume, jitter=jitter
    )
    args = tuple(_json(given_args, list[Any], "--args"))
    kwargs = _json(given_kwargs, dict[str, Any], "--kwargs")

    async def define(target: "TaskMQ") -> None:
        await target.schedules.aadd(name, _called(target, task), trigger, args=args, kwargs=kwargs, **options)

    facts = {"task": task, "rule": trigger.describe()}
    change_with_app(define, "schedule.put", [name], tenant=split_tenant_key(name)[0], after=facts)
    note(f"schedule {name} calls {task}: {trigger.describe()}")


@audited
@over_http("schedules:change")
def change(
    name: str,
    /,
    *,
    task: str | None = None,
    expression: Annotated[str | None, Parameter(name="--cron")] = None,
    tz: str | None = None,
    period: Annotated[str | None, Parameter(name="--every")] = None,
    at: str | None = None,
    given_args: Annotated[str | None, Parameter(name="--args")] = None,
    given_kwargs: Annotated[str | None, Parameter(name="--kwargs")] = None,
    catchup: Catchup | None = None,
    overlap: Overlap | None = None,
    max_concurrency: int | None = None,
    on_resume: OnResume | None = None,
    jitter: str | None = None,
) -> None:
    """Change a schedule that was made at run time; what no option says stays, and so does what it has counted.

    Parameters
    ----------
    name
        The schedule.
    task
        Another task, or with a job store another definition.
    expression
        When: another cron expression, in quotes, by the clocks of the same zone unless --tz says another one.
    tz
        Another zone whose clocks it goes by.
    period
        Or how often, such as 30s.
    at
        Or once, at this instant, such as 2027-01-31T09:00+01:00.
    given_args
        The arguments, as a JSON array.
    given_kwargs
        The arguments by name, as a JSON object.
    catchup
        What becomes of occurrences that were not emitted in time.
    overlap
        What becomes of an occurrence while earlier ones run.
    max_concurrency
        How many may run at a time, where overlap limits them.
    on_resume
        What becomes of the occurrences of a pause.
    jitter
        Emit each later by a time up to this, such as 5m, which follows from the schedule's name; 0 for none.
    """
    options = _said(
        catchup=catchup, overlap=overlap, max_concurrency=max_concurrency, on_resume=on_resume, jitter=jitter
    )
    args = None if given_args is None else tuple(_json(given_args, list[Any], "--args"))
    kwargs = None if given_kwargs is None else _json(given_kwargs, dict[str, Any], "--kwargs")
    instant = None if at is None else instant_of("--at", at)

    async def alter(target: "TaskMQ") -> "ScheduleEntry":
        present = (await target.schedules.aentry(name)).trigger
        trigger = changed_trigger(present, expression=expression, tz=tz, period=period, at=instant)
        other = None if trigger is present else trigger
        called = None if task is None else _called(target, task)
        await target.schedules.achange(name, called, other, args=args, kwargs=kwargs, **options)
        return await target.schedules.aentry(name)

    tenant = split_tenant_key(name)[0]
    entry = change_with_app(alter, "schedule.put", [name], tenant=tenant)
    note(f"schedule {name} calls {entry.starts}: {entry.trigger.describe()}")


@audited
@confirmed("Remove schedule {name}?")
def remove(name: str, /) -> None:
    """Have a schedule that was added at run time be emitted no more.

    Parameters
    ----------
    name
        The schedule.
    """
    own_name = split_tenant_key(name)[1]
    ask(lambda api: _of_tenant(api, name).schedules.remove(own_name))
    note(f"schedule {name} is removed")


def trigger_of(expression: str | None, tz: str, period: str | None, at: str | None) -> Trigger:
    """When, as options say it.

    Raises:
        InvalidOption: they say none, or several.
    """
    match expression, period, at:
        case (str(), None, None):
            return cron(expression, tz=tz)
        case (None, str(), None):
            return every(period)
        case (None, None, str()):
            return once(instant_of("--at", at))
        case _:
            raise InvalidOption("when? Say one of --cron, --every and --at")


def _called(target: "TaskMQ", task: str) -> "Task[..., Any] | str":
    """Find what a name stands for: a task of the app, or with a job store whatever is known there.

    Raises:
        InvalidOption: the app, which has no store, has no such task.
    """
    known = target.tasks.get(task) or (task if target.sessions.store_url is not None else None)
    if known is None:
        raise InvalidOption(f"the app has no task {task!r}; it has {', '.join(sorted(target.tasks)) or 'none'}")
    return known


def _said(**options: Any) -> Any:
    return {name: value for name, value in options.items() if value is not None}


def _ask(use: "Callable[[Schedules], Coroutine[Any, Any, T]]") -> T:
    return run_with_app(lambda target: use(target.schedules))


def _of_tenant(api: Api, name: str) -> Api:
    """The API for the tenant that a name such as @acme:nightly says."""
    tenant, _ = split_tenant_key(name)
    return api.for_tenant(tenant) if tenant else api


def _json(text: str, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise InvalidOption(f"{what} {text!r} cannot be read: {error}") from None


def _text(instant: datetime | None) -> str:
    return "" if instant is None else instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
