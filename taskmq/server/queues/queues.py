"""`/queues`: what is in them, pausing, resuming, moving and emptying them."""

from typing import Annotated, Any, Final

from litestar import get, post
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.queues import (
    MoveBody,
    MovedView,
    PauseBody,
    PurgeBody,
    PurgedView,
    QueueLines,
    QueuePauseView,
    QueueView,
    ResumedView,
)
from taskmq.model.identity import Permission
from taskmq.server.inputs import ApiGiven
from taskmq.server.live.samples import MaxAge, shared_look
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["QUEUES"]


Within = Annotated[float, QueryParameter(ge=0.01, le=5, description="Seconds that workers have to answer.")]


@get(
    f"{API}/queues",
    permission=Permission.QUEUES_READ,
    operation_id="listQueues",
    summary="List queues",
    tags=["queues"],
)
async def get_queues(
    api: ApiGiven,
    state: State,
    names: Annotated[
        str, QueryParameter(max_length=4_000, description="Of queues, with commas between; else the app's own.")
    ] = "",
    within: Within = 1.0,
    max_age: MaxAge = 0,
) -> QueueLines:
    """The app's queues, and each of their lanes, priority classes and dead-letter queues at the broker."""

    async def look() -> QueueLines:
        return await api.queues.list(names.split(",") if names else (), within=within)

    return await shared_look(state, f"queues:{names}:{within}", max_age, look)


@get(
    f"{API}/queues/{{name:str}}",
    permission=Permission.QUEUES_READ,
    operation_id="getQueue",
    summary="Get a queue",
    tags=["queues"],
)
async def get_queue(
    api: ApiGiven, state: State, name: FromPath[str], within: Within = 1.0, max_age: MaxAge = 0
) -> QueueView:
    """Return what broker, state and workers know of one queue."""

    async def look() -> QueueView:
        return await api.queues.get(name, within=within)

    return await shared_look(state, f"queue:{name}:{within}", max_age, look)


@post(
    f"{API}/queues/{{name:str}}/pause",
    status_code=200,
    permission=Permission.QUEUES_OPERATE,
    operation_id="pauseQueue",
    summary="Pause a queue",
    tags=["queues"],
)
async def pause_queue(api: ApiGiven, name: FromPath[str], data: JSONBody[PauseBody | None] = None) -> QueuePauseView:
    """Have no worker start anything of the queue until it is resumed; what runs goes on."""
    return await api.queues.pause(name, note="" if data is None else data.note)


@post(
    f"{API}/queues/{{name:str}}/resume",
    status_code=200,
    permission=Permission.QUEUES_OPERATE,
    operation_id="resumeQueue",
    summary="Resume a queue",
    tags=["queues"],
)
async def resume_queue(api: ApiGiven, name: FromPath[str]) -> ResumedView:
    """Have workers take from the queue again."""
    return ResumedView(was_paused=await api.queues.resume(name))


@post(
    f"{API}/queues/{{name:str}}/purge",
    status_code=200,
    permission=Permission.QUEUES_PURGE,
    operation_id="purgeQueue",
    summary="Delete a queue's waiting messages",
    tags=["queues"],
)
async def purge(api: ApiGiven, name: FromPath[str], data: JSONBody[PurgeBody]) -> PurgedView:
    """Delete the messages that wait, in all priority classes; the body names the queue once more."""
    check_typed_name(data.name, name)
    return PurgedView(purged=await api.queues.purge(name))


@post(
    f"{API}/queues/{{name:str}}/move",
    status_code=200,
    permission=Permission.QUEUES_PURGE,
    operation_id="moveMessages",
    summary="Move a queue's waiting messages",
    tags=["queues"],
)
async def move(api: ApiGiven, name: FromPath[str], data: JSONBody[MoveBody]) -> MovedView:
    """Move messages that wait to another queue, without losing one; the body names the queue once more.

    What workers have, what waits for its time, and jobs of the store stay. After an error some may be moved.
    """
    check_typed_name(data.name, name)
    return await api.queues.move(name, data.to, count=data.count, task=data.task)


QUEUES: Final[tuple[Any, ...]] = (get_queues, get_queue, pause_queue, resume_queue, purge, move)


def check_typed_name(typed: str, name: str) -> None:
    """See that the body names what the path names.

    Raises:
        Problem: it names something else.
    """
    if typed != name:
        raise Problem.about("name", f"it names {typed!r}, and the path {name!r}: nothing was done")
