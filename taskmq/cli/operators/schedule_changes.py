"""Commands that change schedules (pause, resume, run, backfill, add, change, remove), and `show` and `history`."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from taskmq.api.job_requests import JobTerms
from taskmq.api.schedules import ChangeScheduleBody, PutScheduleBody, ScheduleLine
from taskmq.cli.actor import name_caller
from taskmq.cli.flags import JobFlags, ScheduleFlags
from taskmq.cli.globals import current_globals
from taskmq.cli.operators.schedule import api_of_tenant, paused_text
from taskmq.cli.output import ask_first, note, print_record, print_rows
from taskmq.cli.server_link import ask, show_record, show_rows
from taskmq.cli.typed_values import array_of, instant_of, object_of
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.keys import split_tenant_key, tenant_key

if TYPE_CHECKING:
    from taskmq.api.schedules import OccurrenceView

_INSTANT_COLUMNS: Final = ("scheduled_for",)
_COUNTS: Final = ("fired", "late", "missed", "coalesced", "skipped", "failed")
_OCCURRENCE_COLUMNS: Final = ("scheduled_for", "emitted", "late", "kind")
_NO_RULE: Final = ScheduleFlags()
_NO_JOB: Final = JobFlags()
# Fields of a listed schedule, which `show` prints itself.
_OF_LISTS: Final = frozenset({"name", "tenant", "starts", "rule", "is_dynamic", "next", "paused", "note"})


@name_caller
def pause(name: str, /, *, reason: Annotated[str, Parameter(name="--note")] = "") -> None:
    """Pause a schedule until it is resumed.

    Args:
        name: The schedule.
        reason: The reason, for people.
    """
    own_name = split_tenant_key(name)[1]
    ask(lambda api: api_of_tenant(api, name).schedules.pause(own_name, note=reason))
    note(f"schedule {name} paused; resume it with `taskmq schedule resume {name}`")


@name_caller
def resume(name: str, /) -> None:
    """Resume a paused schedule. Its on_resume decides about the occurrences missed while paused.

    Args:
        name: The schedule.
    """
    own_name = split_tenant_key(name)[1]
    ask(lambda api: api_of_tenant(api, name).schedules.resume(own_name))
    note(f"schedule {name} resumed")


@name_caller
def run(name: str, /) -> None:
    """Run a schedule's task now, even if it is paused or not due, and print the job's id.

    Args:
        name: The schedule.
    """
    tenant, own_name = split_tenant_key(name)
    job = ask(lambda api: api_of_tenant(api, name).schedules.run(own_name))
    print_record({"job": tenant_key(tenant or None, job)})


@name_caller
def backfill(
    name: str,
    /,
    *,
    start: Annotated[str, Parameter(name="--from")],
    end: Annotated[str, Parameter(name="--to")],
    dry_run: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Run the occurrences of a past range, again or for the first time. Needs a running beat or scheduler.

    Args:
        name: The schedule.
        start: Start of the range, such as 2027-01-31T09:00+01:00; included.
        end: End of the range; included.
        dry_run: Only list the occurrences.
    """
    first, last = instant_of("--from", start), instant_of("--to", end)
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: api_of_tenant(api, name).schedules.backfill(own_name, first, last, dry_run=dry_run))
    if current_globals().output == "table":
        print_rows(_INSTANT_COLUMNS, [{"scheduled_for": instant} for instant in found.instants])
    else:
        show_record(found, dict)
    more = " or more" if found.has_more else ""
    what = "would be" if dry_run else "are being"
    note(f"{len(found.instants)}{more} occurrences of {name} {what} emitted")


def show(name: str, /) -> None:
    """Show a schedule: its rule, its policies and its arguments.

    Args:
        name: The schedule.
    """
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: api_of_tenant(api, name).schedules.get(own_name))

    def record() -> dict[str, Any]:
        facts = msgspec.structs.asdict(found)
        shown = {"schedule": name, "starts": found.starts, "rule": found.rule}
        return shown | {key: facts[key] for key in ScheduleLine.__struct_fields__ if key not in _OF_LISTS}

    show_record(found, record)


def history(name: str, /) -> None:
    """Show the latest occurrences and the counters of a schedule.

    Args:
        name: The schedule.
    """
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: api_of_tenant(api, name).schedules.get(own_name))
    if found.fired is None:
        raise UnsupportedFeature(f"no history of {name}: the app has neither a job store nor a state")
    if current_globals().output == "table":
        show_rows(_OCCURRENCE_COLUMNS, found.history, _occurrence_row)
    else:
        show_record(found, dict)
    counts = ", ".join(f"{getattr(found, what)} {what}" for what in _COUNTS)
    following = f"next {found.next}" if found.next else "never due again"
    state = f"paused {paused_text(found)}" if found.paused else following
    waiting = f", {found.waiting} waiting for earlier ones to end" if found.waiting else ""
    note(f"{name}: {state}; {counts}{waiting}")


@name_caller
def add(
    name: str,
    task: str,
    /,
    *,
    given_args: Annotated[str, Parameter(name="--args")] = "[]",
    given_kwargs: Annotated[str, Parameter(name="--kwargs")] = "{}",
    rule: ScheduleFlags = _NO_RULE,
    job: JobFlags = _NO_JOB,
) -> None:
    """Add a schedule for a task of the app (--app) at run time.

    Args:
        name: Name of the new schedule. With a job store, @acme:nightly belongs to tenant acme.
        task: The task's name, or with a job store that of a definition.
        given_args: Positional arguments, a JSON array.
        given_kwargs: Named arguments, a JSON object.
    """
    if [rule.expression, rule.period, rule.at].count(None) != 2:
        raise InvalidOption("no time given: pass one of --cron, --every and --at")
    args, kwargs = array_of("--args", given_args), object_of("--kwargs", given_kwargs)
    body = PutScheduleBody(task=task, args=args, kwargs=kwargs, job=_job_of(job), **rule.fields())
    own_name = split_tenant_key(name)[1]
    made = ask(lambda api: api_of_tenant(api, name).schedules.add(own_name, body))
    note(f"schedule {name} calls {made.starts}: {made.rule}")


@name_caller
def change(
    name: str,
    /,
    *,
    task: str | None = None,
    given_args: Annotated[str | None, Parameter(name="--args")] = None,
    given_kwargs: Annotated[str | None, Parameter(name="--kwargs")] = None,
    rule: ScheduleFlags = _NO_RULE,
    job: JobFlags = _NO_JOB,
) -> None:
    """Change a schedule that was added at run time. Other fields and the counters keep their values.

    --every and --at replace any other rule; another --cron keeps the options of the present one. Options of its jobs
    replace all present ones.

    Args:
        name: The schedule.
        task: Another task, or with a job store another definition.
        given_args: Positional arguments, a JSON array.
        given_kwargs: Named arguments, a JSON object.
    """
    args = None if given_args is None else array_of("--args", given_args)
    kwargs = None if given_kwargs is None else object_of("--kwargs", given_kwargs)
    body = ChangeScheduleBody(task=task, args=args, kwargs=kwargs, job=_job_of(job), **rule.fields())
    own_name = split_tenant_key(name)[1]
    found = ask(lambda api: api_of_tenant(api, name).schedules.change(own_name, body))
    note(f"schedule {name} calls {found.starts}: {found.rule}")


@name_caller
@ask_first("Remove schedule {name}?")
def remove(name: str, /) -> None:
    """Remove a schedule that was added at run time.

    Args:
        name: The schedule.
    """
    own_name = split_tenant_key(name)[1]
    ask(lambda api: api_of_tenant(api, name).schedules.remove(own_name))
    note(f"schedule {name} removed")


def _job_of(flags: JobFlags) -> JobTerms | None:
    return None if flags == _NO_JOB else JobTerms(**flags.fields())


def _occurrence_row(one: "OccurrenceView") -> dict[str, Any]:
    late = ""
    if one.scheduled_for is not None and one.emitted is not None:
        span = datetime.fromisoformat(one.emitted) - datetime.fromisoformat(one.scheduled_for)
        late = f"{span.total_seconds():.3f}"
    return {"scheduled_for": one.scheduled_for, "emitted": one.emitted, "late": late, "kind": one.kind}
