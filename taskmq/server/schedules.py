"""`/schedules`: what is due when, putting, pausing, resuming, running and making up for them."""

from typing import Annotated, Any, Final

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
from taskmq.errors import InvalidOption
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven, Cursor, Limit
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
    api: ApiGiven,
    name: FromPath[str],
    data: JSONBody[PutScheduleBody],
    request: Request[Any, Any, Any],
) -> Response[ScheduleView]:
    """Start a task whenever the schedule says from now on. 201: there was none of that name; 200: it is replaced.

    What the body does not say has its default; `PATCH` changes a part. With `If-None-Match: *` none is changed. 412:
    another one has the name.
    """
    _check_rule(data)
    is_new = not await api.schedules.has(name)
    if request.headers.get("if-none-match", "").strip() != "*":
        return Response(await api.schedules.put(name, data), status_code=201 if is_new else 200)
    try:
        return Response(await api.schedules.add(name, data), status_code=201 if is_new else 200)
    except InvalidOption as error:
        if is_new:
            raise
        raise Problem(412, "version_mismatch", str(error)) from error


@patch(
    f"{API}/schedules/{{name:str}}",
    permission=Permission.SCHEDULES_CHANGE,
    operation_id="changeSchedule",
    summary="Change a schedule",
    tags=["schedules"],
)
async def change_schedule(api: ApiGiven, name: FromPath[str], data: JSONBody[ChangeScheduleBody]) -> ScheduleView:
    """Change what the body says of a schedule that was made at run time. All else stays, its counts too."""
    return await api.schedules.change(name, data)


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
    api: ApiGiven,
    name: FromPath[str],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
    after: FromQuery[Instant | None] = None,
) -> InstantList:
    """The instants at which a schedule is due next, whether or not it is paused."""
    return InstantList([*await api.schedules.next(name, count=count, after=after)])


@get(
    f"{API}/schedules/{{name:str}}/explain",
    permission=Permission.SCHEDULES_READ,
    operation_id="explainSchedule",
    summary="Explain a schedule",
    tags=["schedules"],
)
async def explain(
    api: ApiGiven,
    name: FromPath[str],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
) -> ScheduleExplanation:
    """What a schedule means in words, and when it is due next by the clocks of its zone."""
    return await api.schedules.explain(name, count=count)


@post(
    f"{API}/schedules/explain",
    status_code=200,
    permission=Permission.SCHEDULES_READ,
    operation_id="explainRule",
    summary="Explain a rule",
    tags=["schedules"],
)
async def explain_rule(
    api: ApiGiven,
    data: JSONBody[ScheduleRule],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
) -> RuleExplanation:
    """What a rule means in words, and when something is due by it, before it is kept. Nothing is changed."""
    _check_rule(data)
    return await api.schedules.explain_rule(data, count=count)


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


def _check_rule(body: ScheduleRule) -> None:
    """See that the body says one rule.

    Raises:
        Problem: it says none, or several.
    """
    if [body.cron, body.every, body.at].count(None) != 2:
        raise Problem.about("cron", "when? Say one of cron, every and at")
