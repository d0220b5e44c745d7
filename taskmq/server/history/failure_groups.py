"""`/failures/groups`: failures by task and error, and which of them are resolved or muted."""

from typing import Annotated, Final

from litestar.datastructures import State
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.history.failure_groups import FailureGroupList, MuteBody, ResolveBody
from taskmq.model.history.failure_groups import GroupState
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, Limit, Since
from taskmq.server.live.samples import MaxAge, read_shared

FAILURE_GROUP_HANDLERS: Final = Handlers("history")


@FAILURE_GROUP_HANDLERS.handle(
    "GET /failures/groups", "listFailureGroups", Permission.JOBS_READ, "List groups of failures"
)
async def list_groups(
    state: State,
    api: ApiGiven,
    caller: CallerGiven,
    since: Since = None,
    of: Annotated[GroupState | None, QueryParameter(name="state", description="Only groups in this state.")] = None,
    limit: Limit = 200,
    max_age: MaxAge = 0,
) -> FailureGroupList:
    """Return groups with failures in a period, by default the last 24 hours, and those resolved or muted.

    The newest 10,000 failed jobs, expired jobs and failures of sent jobs are counted. Failed runs of workflows count
    by their failed steps; dead letters without a worker's report do not count.
    """
    name = f"failure groups {caller.tenant!r} {since} {of} {limit}"
    return await read_shared(
        state, name, max_age, lambda: api.failure_groups.list(since=since, state=of, limit=limit)
    )


@FAILURE_GROUP_HANDLERS.handle(
    "POST /failures/groups/{group_id}/resolve",
    "resolveFailureGroup",
    Permission.FAILURES_CHANGE,
    "Resolve a group of failures",
)
async def resolve_group(api: ApiGiven, group_id: FromPath[str], data: JSONBody[ResolveBody]) -> dict[str, str]:
    """Mark a group as resolved. The next failure opens it again."""
    await api.failure_groups.resolve(group_id, note=data.note)
    return {"status": "resolved", "id": group_id}


@FAILURE_GROUP_HANDLERS.handle(
    "POST /failures/groups/{group_id}/mute",
    "muteFailureGroup",
    Permission.FAILURES_CHANGE,
    "Mute a group of failures",
)
async def mute_group(api: ApiGiven, group_id: FromPath[str], data: JSONBody[MuteBody]) -> dict[str, str]:
    """Mute a group for some time, or without end. Its failures are still listed, and alerts count them."""
    await api.failure_groups.mute(group_id, seconds=data.seconds, note=data.note)
    return {"status": "muted", "id": group_id}


@FAILURE_GROUP_HANDLERS.handle(
    "POST /failures/groups/{group_id}/reopen",
    "reopenFailureGroup",
    Permission.FAILURES_CHANGE,
    "Open a group of failures again",
)
async def reopen_group(api: ApiGiven, group_id: FromPath[str], data: JSONBody[ResolveBody]) -> dict[str, str]:
    """Open a resolved or muted group again."""
    await api.failure_groups.reopen(group_id, note=data.note)
    return {"status": "open", "id": group_id}
