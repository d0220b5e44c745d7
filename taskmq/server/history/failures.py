"""`/failures`: failed jobs and workflows in one list."""

from typing import Annotated, Final

from litestar.datastructures import State
from litestar.params import QueryParameter

from taskmq.api.history.figures import FailureLane, FailureList
from taskmq.errors import InvalidOption
from taskmq.model.identity import Permission, scope_for
from taskmq.operations.history import FailureSource, LettersView, read_letters
from taskmq.server.access import Caller
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, OfQueue, OfTask, ServedApp, Since, Until
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.problems import Problem

FAILURE_HANDLERS: Final = Handlers("history")

_NEEDS: Final[dict[FailureSource, Permission]] = {
    "jobs": Permission.JOBS_READ,
    "failures": Permission.JOBS_READ,
    "dead letters": Permission.DEAD_LETTERS_READ,
    "workflows": Permission.WORKFLOWS_READ,
}


@FAILURE_HANDLERS.handle("GET /failures", "listFailures", Permission.JOBS_READ, "List failures", may_be_stale=True)
async def list_failures(
    state: State,
    api: ApiGiven,
    app: ServedApp,
    caller: CallerGiven,
    lane: Annotated[FailureLane | None, QueryParameter(description="Only failures of this lane.")] = None,
    task: OfTask = None,
    queue: OfQueue = None,
    job_id: Annotated[str | None, QueryParameter(description="Only failures of this sent job.")] = None,
    error: Annotated[str | None, QueryParameter(description="Only failures with this error type.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    max_age: MaxAge = 0,
    *,
    traceback: Annotated[bool, QueryParameter(description="Include the ends of tracebacks.")] = False,
) -> FailureList:
    """Return failed stored jobs, sent jobs, dead letters and workflows, newest first.

    A workflow is listed at the time it was sent; it has no task, queue or error. Only the oldest 1,000 dead letters
    of each queue are examined. Sources that could not be read are listed in `missing`. `max_age` applies to dead
    letters.
    """

    async def letters() -> LettersView:
        return await read_shared(state, "letters", max_age, lambda: read_letters(app))

    try:
        return await api.figures.failures(
            lane=lane,
            task=task,
            queue=queue,
            job_id=job_id,
            error=error,
            since=since,
            until=until,
            limit=limit,
            cursor=cursor,
            traceback=traceback,
            sources=_sources(caller),
            letters=letters,
        )
    except InvalidOption as refused:
        raise Problem.about(
            "cursor", f"{(cursor or '')[:40]!r} is not a cursor", "`next` of the previous page"
        ) from refused


def _sources(caller: Caller) -> set[FailureSource]:
    """Return the sources that the caller may read for the selected tenant."""
    scopes = {needs: scope_for(caller.identity, needs) for needs in set(_NEEDS.values())}
    return {
        source
        for source, needs in _NEEDS.items()
        if (scopes[needs].tenants is None if caller.tenant is None else scopes[needs].has(caller.tenant))
    }
