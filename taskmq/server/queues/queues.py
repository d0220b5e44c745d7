"""`/queues`: list, inspect, pause, resume, move and purge queues."""

from typing import Annotated, Final

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
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.problems import Problem

QUEUES: Final = Handlers("queues")

Within = Annotated[float, QueryParameter(ge=0.01, le=5, description="Time limit for workers' answers, in seconds.")]


@QUEUES.handle("GET /queues", "listQueues", Permission.QUEUES_READ, "List queues")
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


@QUEUES.handle("GET /queues/{name}", "getQueue", Permission.QUEUES_READ, "Get a queue")
async def get_queue(
    api: ApiGiven, state: State, name: FromPath[str], within: Within = 1.0, max_age: MaxAge = 0
) -> QueueView:
    """Return the details of a queue from the broker, the state and the workers."""

    async def read() -> QueueView:
        return await api.queues.get(name, within=within)

    return await read_shared(state, f"queue:{name}:{within}", max_age, read)


@QUEUES.handle("GET /queues/{name}/demand", "getDemand", Permission.QUEUES_READ, "Get a queue's demand for workers")
async def get_demand(api: ApiGiven, state: State, name: FromPath[str], max_age: MaxAge = 0) -> DemandView:
    """Count the jobs that need a slot of a worker now, in the store and at the broker.

    Programs that start and stop workers should follow this number: schedulers dispatch a stored job only when workers
    have room, so most of a backlog is in the store, and not in RabbitMQ.
    """

    async def read() -> DemandView:
        return await api.queues.demand(name)

    return await read_shared(state, f"demand:{name}", max_age, read)


@QUEUES.handle("POST /queues/{name}/pause", "pauseQueue", Permission.QUEUES_OPERATE, "Pause a queue", repeats=True)
async def pause_queue(api: ApiGiven, name: FromPath[str], data: JSONBody[PauseBody | None] = None) -> QueuePauseView:
    """Stop workers from starting jobs of the queue until it is resumed. Running jobs continue."""
    return await api.queues.pause(name, note="" if data is None else data.note)


@QUEUES.handle("POST /queues/{name}/resume", "resumeQueue", Permission.QUEUES_OPERATE, "Resume a queue", repeats=True)
async def resume_queue(api: ApiGiven, name: FromPath[str]) -> ResumedView:
    """Resume a paused queue."""
    return ResumedView(was_paused=await api.queues.resume(name))


@QUEUES.handle("POST /queues/{name}/purge", "purgeQueue", Permission.QUEUES_PURGE, "Purge a queue")
async def purge(api: ApiGiven, name: FromPath[str], data: JSONBody[PurgeBody]) -> PurgedView:
    """Delete the waiting messages of all priority classes. The body repeats the queue's name."""
    check_typed_name(data.name, name)
    return PurgedView(purged=await api.queues.purge(name))


@QUEUES.handle("POST /queues/{name}/move", "moveMessages", Permission.QUEUES_PURGE, "Move a queue's waiting messages")
async def move(api: ApiGiven, name: FromPath[str], data: JSONBody[MoveBody]) -> MovedView:
    """Move waiting messages to another queue without losing any. The body repeats the queue's name.

    Unacknowledged and delayed messages, and stored jobs, stay. After an error some messages may have been moved.
    """
    check_typed_name(data.name, name)
    return await api.queues.move(name, data.to, count=data.count, task=data.task)


def check_typed_name(typed: str, name: str) -> None:
    """Check that the body repeats the path's name.

    Raises:
        Problem: the names differ.
    """
    if typed != name:
        raise Problem.about("name", f"{typed[:80]!r} does not match {name[:80]!r} in the path: nothing was changed")
