"""`/dead-letters`: looking at them, sending them again, deleting them.

A caller who may do that for one tenant alone meets the letters of that tenant, as if there were no others.
"""

from typing import Annotated, Any, Final, cast

from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from taskmq.api.dead_letters import (
    LetterChoice,
    LetterFilters,
    LetterGroups,
    LetterList,
    LetterQueues,
    PurgeLettersBody,
    ReplayBody,
    ReplayedView,
)
from taskmq.api.queues import PurgedView
from taskmq.errors import NotPermitted
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven, CallerGiven, Limit
from taskmq.server.queues.queues import check_typed_name
from taskmq.server.settings import API

__all__ = ["DEAD_LETTERS"]

_Depth = Annotated[int | None, QueryParameter(ge=1, description="Of the oldest so many; 10,000 at most.")]


@get(
    f"{API}/dead-letters",
    permission=Permission.DEAD_LETTERS_READ,
    operation_id="listDeadLetterQueues",
    summary="Queues with dead letters",
    tags=["dead letters"],
)
async def list_queues_with_letters(api: ApiGiven) -> LetterQueues:
    """The queues that have dead letters, those of lost messages among them.

    For one tenant the oldest 10,000 letters of each queue are looked at.
    """
    return LetterQueues([*await api.dead_letters.queues()])


@get(
    f"{API}/dead-letters/{{queue:str}}",
    permission=Permission.DEAD_LETTERS_READ,
    operation_id="listDeadLetters",
    summary="List dead letters",
    tags=["dead letters"],
)
async def list_letters(
    api: ApiGiven,
    queue: FromPath[str],
    task: FromQuery[str | None] = None,
    error: FromQuery[str | None] = None,
    reason: FromQuery[str | None] = None,
    fingerprint: FromQuery[str | None] = None,
    job: FromQuery[str | None] = None,
    older_than: FromQuery[str | None] = None,
    newer_than: FromQuery[str | None] = None,
    depth: _Depth = None,
    limit: Limit = 50,
    expand: Annotated[str, QueryParameter(description="`body`: the messages, to those who may read jobs.")] = "",
) -> LetterList:
    """The oldest letters of a queue that are chosen, of its oldest 10,000; they stay where they are."""
    found = await api.dead_letters.list(
        queue,
        task=task,
        error=error,
        reason=reason,
        fingerprint=fingerprint,
        job=job,
        older_than=older_than,
        newer_than=newer_than,
        depth=depth,
        limit=limit,
        expand=expand.split(","),
    )
    return LetterList([*found])


@get(
    f"{API}/dead-letters/{{queue:str}}/groups",
    permission=Permission.DEAD_LETTERS_READ,
    operation_id="groupDeadLetters",
    summary="The failures behind dead letters",
    tags=["dead letters"],
)
async def list_groups(
    api: ApiGiven,
    queue: FromPath[str],
    task: FromQuery[str | None] = None,
    error: FromQuery[str | None] = None,
    reason: FromQuery[str | None] = None,
    fingerprint: FromQuery[str | None] = None,
    job: FromQuery[str | None] = None,
    older_than: FromQuery[str | None] = None,
    newer_than: FromQuery[str | None] = None,
    depth: _Depth = None,
) -> LetterGroups:
    """The failures behind the letters that are chosen, of the oldest 10,000 of a queue, the most frequent first."""
    found = await api.dead_letters.groups(
        queue,
        task=task,
        error=error,
        reason=reason,
        fingerprint=fingerprint,
        job=job,
        older_than=older_than,
        newer_than=newer_than,
        depth=depth,
    )
    return LetterGroups([*found])


@post(
    f"{API}/dead-letters/{{queue:str}}/replay",
    status_code=200,
    permission=Permission.DEAD_LETTERS_REPLAY,
    operation_id="replayDeadLetters",
    summary="Send dead letters again",
    tags=["dead letters"],
)
async def replay_letters(
    api: ApiGiven, caller: CallerGiven, queue: FromPath[str], data: JSONBody[ReplayBody]
) -> ReplayedView:
    """Send the jobs of the letters that are chosen again; each is taken off once the broker has its copy.

    Letters of tasks that the caller may not call stay where they are. `to` and `rate` take a role on the instance: a
    slow replay hides the letters that it passes from everybody, and any queue could be named.
    """
    if (data.to is not None or data.rate is not None) and not caller.may(caller.permission, None):
        raise NotPermitted("you may not: to and rate take a role on the instance, leave them out")
    return await api.dead_letters.replay(queue, data)


@post(
    f"{API}/dead-letters/{{queue:str}}/purge",
    status_code=200,
    permission=Permission.DEAD_LETTERS_PURGE,
    operation_id="purgeDeadLetters",
    summary="Delete dead letters",
    tags=["dead letters"],
)
async def purge_letters(api: ApiGiven, queue: FromPath[str], data: JSONBody[PurgeLettersBody]) -> PurgedView:
    """Delete the letters that are chosen; the body names the queue once more.

    Letters of tasks that the caller may not call stay where they are.
    """
    check_typed_name(data.name, queue)
    which = cast("LetterFilters", {name: getattr(data, name) for name in LetterChoice.__struct_fields__})
    return PurgedView(purged=await api.dead_letters.purge(queue, limit=data.limit, dry_run=data.dry_run, **which))


DEAD_LETTERS: Final[tuple[Any, ...]] = (
    list_queues_with_letters,
    list_letters,
    list_groups,
    replay_letters,
    purge_letters,
)
