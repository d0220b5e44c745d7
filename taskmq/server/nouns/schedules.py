"""`/schedules`: what is due when, pausing, resuming, running and making up for them."""

from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from taskmq.api.schedules import (
    BackfillBody,
    BackfillView,
    InstantList,
    OccurrenceView,
    PauseScheduleBody,
    ScheduleLine,
    ScheduleLines,
    ScheduleView,
)
from taskmq.api.values import Instant
from taskmq.app import TaskMQ
from taskmq.errors import UnsupportedFeature
from taskmq.model.identity import Permission
from taskmq.schedules import ScheduleEntry, ScheduleStatus
from taskmq.schedules.triggers import instants_after
from taskmq.server.access import Caller
from taskmq.server.inputs import CallerGiven, ServedApp, instant_text
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["SCHEDULE_HANDLERS"]


@get(
    f"{API}/schedules",
    permission=Permission.SCHEDULES_READ,
    operation_id="listSchedules",
    summary="List schedules",
    tags=["schedules"],
)
async def list_schedules(app: ServedApp, caller: CallerGiven) -> ScheduleLines:
    """The schedules of the app, those that were made at run time among them."""
    entries, statuses = await _schedules(app, caller)
    return ScheduleLines([_line(entry, statuses.get(name)) for name, entry in sorted(entries.items())])


@get(
    f"{API}/schedules/{{name:str}}",
    permission=Permission.SCHEDULES_READ,
    operation_id="getSchedule",
    summary="Get a schedule",
    tags=["schedules"],
)
async def get_schedule(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> ScheduleView:
    """A schedule, and what has become of its occurrences so far."""
    entry = await _find(app, caller, name)
    return _view(entry, await app.schedules.astatus(name))


@get(
    f"{API}/schedules/{{name:str}}/next",
    permission=Permission.SCHEDULES_READ,
    operation_id="getNextOccurrences",
    summary="When a schedule is due next",
    tags=["schedules"],
)
async def get_next(
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
    after: FromQuery[Instant | None] = None,
) -> InstantList:
    """The instants at which a schedule is due next, whether or not it is paused."""
    entry = await _find(app, caller, name)
    start = app.sessions.clock.now_ms() if after is None else round(after.timestamp() * 1000)
    return InstantList([instant_text(at) for at in islice(instants_after(entry.trigger, start), count)])


@post(
    f"{API}/schedules/{{name:str}}/pause",
    status_code=200,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="pauseSchedule",
    summary="Pause a schedule",
    tags=["schedules"],
)
async def pause_schedule(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[PauseScheduleBody | None] = None
) -> ScheduleView:
    """Have nothing emitted until it is resumed."""
    entry = await _find(app, caller, name)
    note = "" if data is None else data.note
    await caller.note_action(app, "schedule.pause", subject=name, note=note)
    await app.schedules.apause(name, note=note)
    return _view(entry, await app.schedules.astatus(name))


@post(
    f"{API}/schedules/{{name:str}}/resume",
    status_code=200,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="resumeSchedule",
    summary="Resume a schedule",
    tags=["schedules"],
)
async def resume_schedule(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> ScheduleView:
    """Have a paused schedule go on."""
    entry = await _find(app, caller, name)
    await caller.note_action(app, "schedule.resume", subject=name)
    await app.schedules.aresume(name)
    return _view(entry, await app.schedules.astatus(name))


@post(
    f"{API}/schedules/{{name:str}}/run",
    status_code=201,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="runSchedule",
    summary="Run a schedule now",
    tags=["schedules"],
)
async def run_schedule(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> dict[str, str]:
    """Send a call of its task now, whatever the schedule says; answers with the job's id."""
    await _find(app, caller, name)
    await caller.note_action(app, "schedule.run", subject=name)
    return {"status": "submitted", "job_id": await app.schedules.arun(name)}


@post(
    f"{API}/schedules/{{name:str}}/backfill",
    status_code=200,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="backfillSchedule",
    summary="Make up for occurrences of the past",
    tags=["schedules"],
)
async def backfill(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[BackfillBody]
) -> BackfillView:
    """Emit the occurrences of a range of the past, at low priority and a few a second."""
    await _find(app, caller, name)
    if not data.dry_run:
        await caller.note_action(app, "schedule.backfill", subject=name, after=msgspec.to_builtins(data))
    found = await app.schedules.abackfill(name, data.start, data.end, dry_run=data.dry_run)
    return BackfillView(run=found.run, instants=[_text(at) for at in found.instants], has_more=found.has_more)


SCHEDULE_HANDLERS: Final[tuple[Any, ...]] = (
    list_schedules,
    get_schedule,
    get_next,
    pause_schedule,
    resume_schedule,
    run_schedule,
    backfill,
)


async def _schedules(app: TaskMQ, caller: Caller) -> tuple[dict[str, ScheduleEntry], dict[str, ScheduleStatus]]:
    """What the caller may see: the schedules of an app belong to no tenant, so instance roles alone see them."""
    if not caller.is_everybody:
        return {}, {}
    try:
        return await app.schedules.aall(), await app.schedules.astatuses()
    except UnsupportedFeature:
        # Without a state there are those of the code, and nobody knows more of them.
        return dict(app.schedules), {}


async def _find(app: TaskMQ, caller: Caller, name: str) -> ScheduleEntry:
    entries, _ = await _schedules(app, caller)
    if (entry := entries.get(name)) is None:
        raise Problem(404, "schedule_not_found", f"no schedule is called {name[:128]!r}")
    return entry


def _line(entry: ScheduleEntry, status: ScheduleStatus | None) -> ScheduleLine:
    return ScheduleLine(
        name=entry.name,
        starts=entry.starts,
        rule=entry.trigger.describe(),
        is_dynamic=entry.is_dynamic,
        next=None if status is None else _text(status.next),
        paused=None if status is None else _text(status.paused),
        note="" if status is None else status.note,
    )


def _view(entry: ScheduleEntry, status: ScheduleStatus) -> ScheduleView:
    line = _line(entry, status)
    return ScheduleView(
        **{name: getattr(line, name) for name in line.__struct_fields__},
        fired=status.fired,
        late=status.late,
        missed=status.missed,
        skipped=status.skipped,
        failed=status.failed,
        waiting=status.waiting,
        active=status.active,
        history=[
            OccurrenceView(scheduled_for=_text(one.scheduled_for), emitted=_text(one.emitted), kind=one.kind)
            for one in status.history
        ],
    )


def _text(moment: datetime | None) -> str | None:
    return (
        None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
