"""`/schedules`: read, change, pause, run and backfill schedules."""

from typing import Annotated, Any, Final

from litestar import Request, Response
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
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Cursor, Limit
from taskmq.server.problems import Problem

SCHEDULES: Final = Handlers("schedules")


@SCHEDULES.handle("GET /schedules", "listSchedules", Permission.SCHEDULES_READ, "List schedules")
async def list_schedules(
    api: ApiGiven,
    prefix: Annotated[str, QueryParameter(max_length=255)] = "",
    workflow: Annotated[str, QueryParameter(max_length=255)] = "",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ScheduleList:
    """Return a tenant's schedules ordered by name; for an instance role, the app's and all tenants'.

    `workflow` selects those that start this workflow: of the code, and others whose names begin with the workflow's.
    """
    return await api.schedules.page(prefix, workflow=workflow, limit=limit, cursor=cursor)


@SCHEDULES.handle("GET /schedules/{name}", "getSchedule", Permission.SCHEDULES_READ, "Get a schedule")
async def get_schedule(api: ApiGiven, name: FromPath[str]) -> ScheduleView:
    """Return a schedule with the history of its occurrences."""
    return await api.schedules.get(name)


@SCHEDULES.handle("PUT /schedules/{name}", "putSchedule", Permission.SCHEDULES_CHANGE, "Create or replace a schedule")
async def put_schedule(
    api: ApiGiven,
    name: FromPath[str],
    data: JSONBody[PutScheduleBody],
    request: Request[Any, Any, Any],
) -> Response[ScheduleView]:
    """Create the schedule (201) or replace the one with this name (200).

    Omitted fields take their defaults; use `PATCH` to change single fields. With `If-None-Match: *` an existing
    schedule is not replaced, and the response is 412.
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


@SCHEDULES.handle("PATCH /schedules/{name}", "changeSchedule", Permission.SCHEDULES_CHANGE, "Change a schedule")
async def change_schedule(api: ApiGiven, name: FromPath[str], data: JSONBody[ChangeScheduleBody]) -> ScheduleView:
    """Change the given fields of a schedule created at run time. All others stay unchanged, including its counts."""
    return await api.schedules.change(name, data)


@SCHEDULES.handle("DELETE /schedules/{name}", "removeSchedule", Permission.SCHEDULES_CHANGE, "Remove a schedule")
async def remove_schedule(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Remove a schedule. Jobs it started continue. A schedule defined in code cannot be removed."""
    await api.schedules.remove(name)
    return {"status": "removed", "name": name}


@SCHEDULES.handle(
    "GET /schedules/{name}/next", "getNextOccurrences", Permission.SCHEDULES_READ, "List the next occurrences"
)
async def get_next(
    api: ApiGiven,
    name: FromPath[str],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
    after: FromQuery[Instant | None] = None,
) -> InstantList:
    """Return the next occurrences of a schedule, even while it is paused."""
    return InstantList([*await api.schedules.next(name, count=count, after=after)])


@SCHEDULES.handle("GET /schedules/{name}/explain", "explainSchedule", Permission.SCHEDULES_READ, "Explain a schedule")
async def explain(
    api: ApiGiven,
    name: FromPath[str],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
) -> ScheduleExplanation:
    """Return the meaning of a schedule in words, and its next occurrences in its time zone."""
    return await api.schedules.explain(name, count=count)


@SCHEDULES.handle("POST /schedules/explain", "explainRule", Permission.SCHEDULES_READ, "Explain a rule", repeats=True)
async def explain_rule(
    api: ApiGiven,
    data: JSONBody[ScheduleRule],
    count: Annotated[int, QueryParameter(ge=1, le=100)] = 5,
) -> RuleExplanation:
    """Return the meaning of a rule in words, and its next occurrences. Nothing is changed."""
    _check_rule(data)
    return await api.schedules.explain_rule(data, count=count)


@SCHEDULES.handle(
    "POST /schedules/{name}/pause", "pauseSchedule", Permission.SCHEDULES_OPERATE, "Pause a schedule", repeats=True
)
async def pause_schedule(
    api: ApiGiven, name: FromPath[str], data: JSONBody[PauseScheduleBody | None] = None
) -> ScheduleView:
    """Pause a schedule: no occurrences are emitted until it is resumed."""
    return await api.schedules.pause(name, note="" if data is None else data.note)


@SCHEDULES.handle(
    "POST /schedules/{name}/resume",
    "resumeSchedule",
    Permission.SCHEDULES_OPERATE,
    "Resume a schedule",
    repeats=True,
)
async def resume_schedule(api: ApiGiven, name: FromPath[str]) -> ScheduleView:
    """Resume a paused schedule."""
    return await api.schedules.resume(name)


@SCHEDULES.handle(
    "POST /schedules/{name}/run", "runSchedule", Permission.SCHEDULES_OPERATE, "Run a schedule now", status_code=201
)
async def run_schedule(api: ApiGiven, name: FromPath[str]) -> dict[str, str]:
    """Start the schedule's task now, independent of its rule. Returns the job's id."""
    return {"status": "submitted", "job_id": await api.schedules.run(name)}


@SCHEDULES.handle(
    "POST /schedules/{name}/backfill", "backfillSchedule", Permission.SCHEDULES_OPERATE, "Backfill a schedule"
)
async def backfill(api: ApiGiven, name: FromPath[str], data: JSONBody[BackfillBody]) -> BackfillView:
    """Emit the occurrences of a past period, at low priority and a limited rate."""
    return await api.schedules.backfill(name, data.start, data.end, dry_run=data.dry_run)


def _check_rule(body: ScheduleRule) -> None:
    """Check that the body has exactly one rule.

    Raises:
        Problem: it has none, or several.
    """
    if [body.cron, body.every, body.at].count(None) != 2:
        raise Problem.about("cron", "give exactly one of cron, every and at")
