"""The commands that change schedules (pause, resume, run, backfill, add, change, remove), and `show`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.schedules import ChangeScheduleBody, PutScheduleBody, ScheduleLine
from taskmq.cli.actor import audited
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.schedule import of_tenant, paused_text
from taskmq.cli.output import confirmed, note, print_record, print_rows
from taskmq.cli.server_link import ask, show_record, show_rows
from taskmq.cli.typed_values import array_of, instant_of, object_of
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.schedules.policy import Catchup, OnResume, Overlap

if TYPE_CHECKING:
    from taskmq.api.schedules import OccurrenceView

__all__ = ["add", "backfill", "change", "history", "pause", "remove", "resume", "run", "show"]

_INSTANT_COLUMNS: Final = ("scheduled_for",)
_COUNTS: Final = ("fired", "late", "missed", "coalesced", "skipped", "failed")
_OCCURRENCE_COLUMNS: Final = ("scheduled_for", "emitted", "late", "kind")
# What is shown of a schedule beside what is said of it.
_OF_LISTS: Final = frozenset({"name", "tenant", "starts", "rule", "is_dynamic", "next", "paused", "note"})


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
    ask(lambda api: of_tenant(api, name).schedules.pause(own_name, note=reason))
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
    ask(lambda api: of_tenant(api, name).schedules.resume(own_name))
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
    job = ask(lambda api: of_tenant(api, name).schedules.run(own_name))
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
    found = ask(lambda api: of_tenant(api, name).schedules.backfill(own_name, first, last, dry_run=dry_run))
    if current_globals().output == "table":
        print_rows(_INSTANT_COLUMNS, [{"scheduled_for": instant} for instant in found.instants])
    else:
        show_record(found, dict)
    more = " or more" if found.has_more else ""
    what = "would be" if dry_run else "are being"
    note(f"{len(found.instants)}{more} occurrences of {name} {what} emitted")


def show(name: str, /) -> None:
    """Show a schedule: its rule, what becomes of late occurrences, and its arguments.

    Parameters
    ----------
    name
        The schedule.
    """
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: of_tenant(api, name).schedules.get(own_name))

    def record() -> dict[str, Any]:
        facts = msgspec.structs.asdict(found)
        shown = {"schedule": name, "starts": found.starts, "rule": found.rule}
        return shown | {key: facts[key] for key in ScheduleLine.__struct_fields__ if key not in _OF_LISTS}

    show_record(found, record)


def history(name: str, /) -> None:
    """Show what a schedule has emitted last, and what it has counted.

    Parameters
    ----------
    name
        The schedule.
    """
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: of_tenant(api, name).schedules.get(own_name))
    if found.fired is None:
        raise UnsupportedFeature(f"nothing is kept of {name}: the app has neither a job store nor a state")
    if current_globals().output == "table":
        show_rows(_OCCURRENCE_COLUMNS, found.history, _occurrence_row)
    else:
        show_record(found, dict)
    counts = ", ".join(f"{getattr(found, what)} {what}" for what in _COUNTS)
    following = f"next {found.next}" if found.next else "never due again"
    state = f"paused {paused_text(found)}" if found.paused else following
    waiting = f", {found.waiting} waiting for earlier ones to end" if found.waiting else ""
    note(f"{name}: {state}; {counts}{waiting}")


@audited
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
    if [expression, period, at].count(None) != 2:
        raise InvalidOption("when? Say one of --cron, --every and --at")
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
    own_name = split_tenant_key(name)[1]
    made = ask(lambda api: of_tenant(api, name).schedules.add(own_name, body))
    note(f"schedule {name} calls {made.starts}: {made.rule}")


@audited
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
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: of_tenant(api, name).schedules.change(own_name, body))
    note(f"schedule {name} calls {found.starts}: {found.rule}")


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
    ask(lambda api: of_tenant(api, name).schedules.remove(own_name))
    note(f"schedule {name} is removed")


def _occurrence_row(one: "OccurrenceView") -> dict[str, Any]:
    late = ""
    if one.scheduled_for is not None and one.emitted is not None:
        span = datetime.fromisoformat(one.emitted) - datetime.fromisoformat(one.scheduled_for)
        late = f"{span.total_seconds():.3f}"
    return {"scheduled_for": one.scheduled_for, "emitted": one.emitted, "late": late, "kind": one.kind}
