"""`/failures`: what has failed, in one list."""

from typing import Annotated, Any, Final

from litestar import get
from litestar.datastructures import State
from litestar.params import QueryParameter

from taskmq.api.history.figures import FailureLane, FailureList
from taskmq.errors import InvalidOption
from taskmq.model.identity import Permission, scope_for
from taskmq.operations.history import FailureSource, LettersView, read_letters
from taskmq.server.access import Caller
from taskmq.server.history.inputs import OfQueue, OfTask, Since, Until
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, ServedApp
from taskmq.server.live.samples import MaxAge, shared_look
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["FAILURE_HANDLERS"]

_NEEDS: Final[dict[FailureSource, Permission]] = {
    "jobs": Permission.JOBS_READ,
    "failures": Permission.JOBS_READ,
    "dead letters": Permission.DEAD_LETTERS_READ,
    "workflows": Permission.WORKFLOWS_READ,
}


@get(
    f"{API}/failures",
    permission=Permission.JOBS_READ,
    operation_id="listFailures",
    summary="What has failed",
    tags=["history"],
)
async def list_failures(
    state: State,
    api: ApiGiven,
    app: ServedApp,
    caller: CallerGiven,
    lane: Annotated[FailureLane | None, QueryParameter(description="Of this lane alone.")] = None,
    task: OfTask = None,
    queue: OfQueue = None,
    job_id: Annotated[str | None, QueryParameter(description="Of this job alone, which was sent.")] = None,
    error: Annotated[str | None, QueryParameter(description="The type of the error.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    max_age: MaxAge = 0,
    *,
    traceback: Annotated[bool, QueryParameter(description="With the ends of tracebacks.")] = False,
) -> FailureList:
    """Jobs of the store, jobs that were sent, dead letters and workflows that have failed, the last one first.

    A workflow counts at the time it was sent; it has no task, queue and error. Of each queue the oldest 1,000 dead
    letters are looked at. What could not be asked is in `missing`, and the rest is shown. `max_age` is about dead
    letters.
    """

    async def letters() -> LettersView:
        return await shared_look(state, "letters", max_age, lambda: read_letters(app))

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
            "cursor", f"{(cursor or '')[:40]!r} is no cursor", "`next` of the page before"
        ) from refused


FAILURE_HANDLERS: Final[tuple[Any, ...]] = (list_failures,)


def _sources(caller: Caller) -> set[FailureSource]:
    """Return what the caller may read, of the tenant that the call is about."""
    scopes = {needs: scope_for(caller.identity, needs) for needs in set(_NEEDS.values())}
    return {
        source
        for source, needs in _NEEDS.items()
        if (scopes[needs].tenants is None if caller.tenant is None else scopes[needs].has(caller.tenant))
    }
