"""`/queues`: list, inspect, pause, resume, move and purge queues."""

from typing import Annotated, Any, Final

from litestar import get, post
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.queues import (
    DemandView,
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
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.problems import Problem
from taskmq.server.settings import API

Within = Annotated[float, QueryParameter(ge=0.01, le=5, description="Time limit for workers' answers, in seconds.")]


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
        str, QueryParameter(max_length=4_000, description="Comma-separated queues. Default: the app's queues.")
    ] = "",
    within: Within = 1.0,
    max_age: MaxAge = 0,
) -> QueueLines:
    """Return the app's queues, with their RabbitMQ queues for lanes, priority classes and dead letters."""

    async def read() -> QueueLines:
        return await api.queues.list(names.split(",") if names else (), within=within)

    return await read_shared(state, f"queues:{names}:{within}", max_age, read)


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
    """Return the details of a queue from the broker, the state and the workers."""

    async def read() -> QueueView:
        return await api.queues.get(name, within=within)

    return await read_shared(state, f"queue:{name}:{within}", max_age, read)


@get(
    f"{API}/queues/{{name:str}}/demand",
    permission=Permission.QUEUES_READ,
    operation_id="getDemand",
    summary="Get a queue's demand for workers",
    tags=["queues"],
)
async def get_demand(api: ApiGiven, state: State, name: FromPath[str], max_age: MaxAge = 0) -> DemandView:
    """Count the jobs that need a slot of a worker now, in the store and at the broker.

    Programs that start and stop workers should follow this number: schedulers dispatch a stored job only when workers
    have room, so most of a backlog is in the store, and not in RabbitMQ.
    """

    async def read() -> DemandView:
        return await api.queues.demand(name)

    return await read_shared(state, f"demand:{name}", max_age, read)


@post(
    f"{API}/queues/{{name:str}}/pause",
    status_code=200,
    permission=Permission.QUEUES_OPERATE,
    operation_id="pauseQueue",
    summary="Pause a queue",
    tags=["queues"],
)
async def pause_queue(api: ApiGiven, name: FromPath[str], data: JSONBody[PauseBody | None] = None) -> QueuePauseView:
    """Stop workers from starting jobs of the queue until it is resumed. Running jobs continue."""
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
    """Resume a paused queue."""
    return ResumedView(was_paused=await api.queues.resume(name))


@post(
    f"{API}/queues/{{name:str}}/purge",
    status_code=200,
    permission=Permission.QUEUES_PURGE,
    operation_id="purgeQueue",
    summary="Purge a queue",
    tags=["queues"],
)
async def purge(api: ApiGiven, name: FromPath[str], data: JSONBody[PurgeBody]) -> PurgedView:
    """Delete the waiting messages of all priority classes. The body repeats the queue's name."""
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
    """Move waiting messages to another queue without losing any. The body repeats the queue's name.

    Unacknowledged and delayed messages, and stored jobs, stay. After an error some messages may have been moved.
    """
    check_typed_name(data.name, name)
    return await api.queues.move(name, data.to, count=data.count, task=data.task)


QUEUES: Final[tuple[Any, ...]] = (get_queues, get_queue, get_demand, pause_queue, resume_queue, purge, move)


def check_typed_name(typed: str, name: str) -> None:
    """Check that the body repeats the path's name.

    Raises:
        Problem: the names differ.
    """
    if typed != name:
        raise Problem.about("name", f"{typed!r} does not match {name!r} in the path: nothing was changed")
