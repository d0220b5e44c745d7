"""`/dead-letters`: list, replay and purge.

A caller limited to one tenant only sees that tenant's letters.
"""

from typing import Annotated, Final, cast

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
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, Limit
from taskmq.server.queues.queues import check_typed_name

DEAD_LETTERS: Final = Handlers("dead letters")

_Depth = Annotated[
    int | None, QueryParameter(ge=1, description="Number of oldest letters to examine, at most 10,000.")
]


@DEAD_LETTERS.handle(
    "GET /dead-letters", "listDeadLetterQueues", Permission.DEAD_LETTERS_READ, "List queues with dead letters"
)
async def list_queues_with_letters(api: ApiGiven) -> LetterQueues:
    """Return the queues with dead letters, including the queues of lost messages.

    For a single tenant, only the oldest 10,000 letters of each queue are examined.
    """
    return LetterQueues([*await api.dead_letters.queues()])


@DEAD_LETTERS.handle(
    "GET /dead-letters/{queue}", "listDeadLetters", Permission.DEAD_LETTERS_READ, "List dead letters"
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
    expand: Annotated[
        str, QueryParameter(description="`body` includes the messages, for callers who may read jobs.")
    ] = "",
) -> LetterList:
    """Return the oldest matching letters among the first 10,000 of a queue. They stay in the queue."""
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


@DEAD_LETTERS.handle(
    "GET /dead-letters/{queue}/groups",
    "groupDeadLetters",
    Permission.DEAD_LETTERS_READ,
    "Group dead letters by failure",
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
    """Return the failures behind matching letters, among the oldest 10,000 of a queue, most frequent first."""
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


@DEAD_LETTERS.handle(
    "POST /dead-letters/{queue}/replay", "replayDeadLetters", Permission.DEAD_LETTERS_REPLAY, "Replay dead letters"
)
async def replay_letters(
    api: ApiGiven, caller: CallerGiven, queue: FromPath[str], data: JSONBody[ReplayBody]
) -> ReplayedView:
    """Send the jobs of matching letters again. A letter is removed once the broker confirms its copy.

    Letters of tasks that the caller may not call stay in the queue. `to` and `rate` need an instance role: `to` can
    name any queue, and a slow replay hides the letters it examines from others.
    """
    if (data.to is not None or data.rate is not None) and not caller.may(caller.permission, None):
        raise NotPermitted("permission denied: to and rate need an instance role; omit them")
    return await api.dead_letters.replay(queue, data)


@DEAD_LETTERS.handle(
    "POST /dead-letters/{queue}/purge", "purgeDeadLetters", Permission.DEAD_LETTERS_PURGE, "Delete dead letters"
)
async def purge_letters(api: ApiGiven, queue: FromPath[str], data: JSONBody[PurgeLettersBody]) -> PurgedView:
    """Delete matching letters. The body repeats the queue's name.

    Letters of tasks that the caller may not call stay in the queue.
    """
    check_typed_name(data.name, queue)
    which = cast("LetterFilters", {name: getattr(data, name) for name in LetterChoice.__struct_fields__})
    return PurgedView(purged=await api.dead_letters.purge(queue, limit=data.limit, dry_run=data.dry_run, **which))
