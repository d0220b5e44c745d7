"""`/schedules`: what is due when, putting, pausing, resuming, running and making up for them."""

from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, cast

from litestar import Request, Response, get, post
from litestar.handlers import delete, patch, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from taskmq.api.schedules import (
    BackfillBody,
    BackfillView,
    ChangeScheduleBody,
    InstantList,
    PauseScheduleBody,
    PutScheduleBody,
    RuleExplanation,
    ScheduleExplanation,
    ScheduleList,
    ScheduleRule,
    ScheduleView,
)
from taskmq.api.values import Instant
from taskmq.app_api.schedules import schedule_view
from taskmq.app_api.views import instant_text, milliseconds_of
from taskmq.errors import InvalidOption
from taskmq.model.identity import Permission
from taskmq.operations.schedule_facts import changed_trigger
from taskmq.operations.tenant_schedules import TenantSchedules
from taskmq.schedules import ScheduleOptions
from taskmq.schedules.policy import read_policy
from taskmq.schedules.triggers import Trigger, cron, every, explain_trigger, instants_after, once
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, ServedApp
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
async def list_schedules(
    api: ApiGiven,
    prefix: Annotated[str, QueryParameter(max_length=255)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ScheduleList:
    """A tenant's schedules by name; for a role on the instance those of the app, and everybody's."""
    return await api.schedules.page(prefix, limit=limit, cursor=cursor)


@get(
    f"{API}/schedules/{{name:str}}",
    permission=Permission.SCHEDULES_READ,
    operation_id="getSchedule",
    summary="Get a schedule",
    tags=["schedules"],
)
async def get_schedule(api: ApiGiven, name: FromPath[str]) -> ScheduleView:
    """A schedule, and what has become of its occurrences so far."""
    return await api.schedules.get(name)


@put(
    f"{API}/schedules/{{name:str}}",
    permission=Permission.SCHEDULES_CHANGE,
    operation_id="putSchedule",
    summary="Put a schedule",
    tags=["schedules"],
)
async def put_schedule(
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    data: JSONBody[PutScheduleBody],
    request: Request[Any, Any, Any],
) -> Response[ScheduleView]:
    """Start a task whenever the schedule says from now on. 201: there was none of that name; 200: it is replaced.

    What the body does not say has its default; `PATCH` changes a part. With `If-None-Match: *` none is changed. 412:
    another one has the name.
    """
    own, trigger = _own(app, caller), _trigger(data)
    await own.check_put(name, data.task)
    policy = read_policy(_options(data), schedule=name)
    after = {"task": data.task, "rule": trigger.describe(), **policy.facts()}
    await caller.note_action(app, "schedule.put", subject=own.full_name(name), after=after)
    if request.headers.get("if-none-match", "").strip() == "*":
        is_new = not await own.has(name)
        try:
            await own.add(name, data.task, trigger, args=data.args, kwargs=data.kwargs, options=_options(data))
        except InvalidOption as error:
            if is_new:
                raise
            raise Problem(412, "version_mismatch", str(error)) from error
    else:
        is_new = await own.put(name, data.task, trigger, args=data.args, kwargs=data.kwargs, options=_options(data))
    return Response(schedule_view(await own.get(name), caller), status_code=201 if is_new else 200)


@patch(
    f"{API}/schedules/{{name:str}}",
    permission=Permission.SCHEDULES_CHANGE,
    operation_id="changeSchedule",
    summary="Change a schedule",
    tags=["schedules"],
)
async def change_schedule(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[ChangeScheduleBody]
) -> ScheduleView:
    """Change what the body says of a schedule that was made at run time. All else stays, its counts too."""
    own = _own(app, caller)
    await own.check_change(name, data.task)
    present = (await own.entry(name)).trigger
    trigger = changed_trigger(present, expression=data.cron, tz=data.tz, period=data.every, at=data.at)
    other = None if trigger is present else trigger
    said = {"task": data.task, "rule": None if other is None else other.describe(), **_options(data)}
    if data.args is not None or data.kwargs is not None:
        # Never to what: they are for the task alone.
        said["arguments"] = "changed"
    after = {key: value for key, value in said.items() if value is not None}
    await caller.note_action(app, "schedule.change", subject=own.full_name(name), after=after)
    await own.change(name, task=data.task, trigger=other, args=data.args, kwargs=data.kwargs, options=_options(data))
    return schedule_view(await own.get(name), caller)


@delete(
    f"{API}/schedules/{{name:str}}",
    status_code=200,
    permission=Permission.SCHEDULES_CHANGE,
    operation_id="removeSchedule",
    summary="Remove a schedule",
    tags=["schedules"],
)
async def remove_schedule(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Have it start nothing any more; what it has started goes on. One of the code cannot be removed."""
    await api.schedules.remove(name)
    return {"status": "removed", "name": name}


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
    entry = await _own(app, caller).entry(name)
    start = app.sessions.clock.now_ms() if after is None else milliseconds_of(after)
    return InstantList([instant_text(at) for at in islice(instants_after(entry.trigger, start), count)])


@get(
    f"{API}/schedules/{{name:str}}/explain",
    permission=Permission.SCHEDULES_READ,
    operation_id="explainSchedule",
    summary="Explain a schedule",
    tags=["schedules"],
)
async def explain(
    app: ServedApp,
    caller: CallerGiven,
    name: FromPath[str],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
) -> ScheduleExplanation:
    """What a schedule means in words, and when it is due next by the clocks of its zone."""
    found = await _own(app, caller).get(name)
    line = schedule_view(found, caller)
    words = explain_trigger(found.entry.trigger, after=app.sessions.clock.now_ms(), count=count)
    return ScheduleExplanation(
        name=line.name,
        starts=line.starts,
        means=words.means,
        clock_changes=words.clock_changes,
        next=words.next,
        paused=line.paused,
        note=line.note,
    )


@post(
    f"{API}/schedules/explain",
    status_code=200,
    permission=Permission.SCHEDULES_READ,
    operation_id="explainRule",
    summary="Explain a rule",
    tags=["schedules"],
)
async def explain_rule(
    app: ServedApp,
    data: JSONBody[ScheduleRule],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
) -> RuleExplanation:
    """What a rule means in words, and when something is due by it, before it is kept. Nothing is changed."""
    words = explain_trigger(_trigger(data), after=app.sessions.clock.now_ms(), count=count)
    return RuleExplanation(means=words.means, clock_changes=words.clock_changes, next=words.next)


@post(
    f"{API}/schedules/{{name:str}}/pause",
    status_code=200,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="pauseSchedule",
    summary="Pause a schedule",
    tags=["schedules"],
)
async def pause_schedule(
    api: ApiGiven, name: FromPath[str], data: JSONBody[PauseScheduleBody | None] = None
) -> ScheduleView:
    """Have nothing emitted until it is resumed."""
    return await api.schedules.pause(name, note="" if data is None else data.note)


@post(
    f"{API}/schedules/{{name:str}}/resume",
    status_code=200,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="resumeSchedule",
    summary="Resume a schedule",
    tags=["schedules"],
)
async def resume_schedule(api: ApiGiven, name: FromPath[str]) -> ScheduleView:
    """Have a paused schedule go on."""
    return await api.schedules.resume(name)


@post(
    f"{API}/schedules/{{name:str}}/run",
    status_code=201,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="runSchedule",
    summary="Run a schedule now",
    tags=["schedules"],
)
async def run_schedule(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Send a call of its task now, whatever the schedule says; answers with the job's id."""
    return {"status": "submitted", "job_id": await api.schedules.run(name)}


@post(
    f"{API}/schedules/{{name:str}}/backfill",
    status_code=200,
    permission=Permission.SCHEDULES_OPERATE,
    operation_id="backfillSchedule",
    summary="Make up for occurrences of the past",
    tags=["schedules"],
)
async def backfill(api: ApiGiven, name: FromPath[str], data: JSONBody[BackfillBody]) -> BackfillView:
    """Emit the occurrences of a range of the past, at low priority and a few a second."""
    return await api.schedules.backfill(name, data.start, data.end, dry_run=data.dry_run)


SCHEDULE_HANDLERS: Final[tuple[Any, ...]] = (
    list_schedules,
    get_schedule,
    put_schedule,
    change_schedule,
    remove_schedule,
    get_next,
    explain,
    explain_rule,
    pause_schedule,
    resume_schedule,
    run_schedule,
    backfill,
)


def _own(app: ServedApp, caller: CallerGiven) -> TenantSchedules:
    return TenantSchedules(app, caller.tenant, allows=caller.allows)


def _trigger(body: ScheduleRule) -> Trigger:
    match body.cron, body.every, body.at:
        case (str() as expression, None, None):
            return cron(expression, tz=body.tz)
        case (None, (str() | float() | int()) as period, None):
            return every(period)
        case (None, None, datetime() as instant):
            return once(instant)
        case _:
            raise Problem.about("cron", "when? Say one of cron, every and at")


def _options(body: PutScheduleBody | ChangeScheduleBody) -> ScheduleOptions:
    names = ("catchup", "overlap", "max_concurrency", "on_resume", "jitter")
    said: Any = {name: value for name in names if (value := getattr(body, name)) is not None}
    return cast("ScheduleOptions", said)
