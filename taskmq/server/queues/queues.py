"""`/queues`: what is in them, pausing, resuming, moving and emptying them."""

from collections.abc import Container, Iterable, Sequence
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
    QueueGroup,
    QueueLine,
    QueueLines,
    QueuePauseView,
    QueueView,
    ResumedView,
)
from taskmq.app_api.views import instant_text, rendered
from taskmq.client.queues import QueuePause
from taskmq.contracts.broker import QueueStats
from taskmq.model.identity import Permission
from taskmq.model.topology import PARKING, UNROUTABLE, dead_letter_queue, logical_queue
from taskmq.operations.queue_moves import move_messages
from taskmq.operations.queues import (
    find_pauses,
    list_queues,
    pause_queues,
    purge_queue,
    report_queue,
    resume_queues,
)
from taskmq.server.inputs import CallerGiven, ServedApp
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
async def get_queues(app: ServedApp, state: State, within: Within = 1.0, max_age: MaxAge = 0) -> QueueLines:
    """The app's queues, and each of their lanes, priority classes and dead-letter queues at the broker."""

    async def look() -> QueueLines:
        found = await list_queues(app, within=within)
        pauses = await find_pauses(app)
        lines = rendered(lambda each: _line(each, pauses), found.queues)
        return QueueLines(items=lines, delayed=found.delayed, queues=_groups(lines, pauses))

    return await shared_look(state, f"queues:{within}", max_age, look)


@get(
    f"{API}/queues/{{name:str}}",
    permission=Permission.QUEUES_READ,
    operation_id="getQueue",
    summary="Get a queue",
    tags=["queues"],
)
async def get_queue(
    app: ServedApp, state: State, name: FromPath[str], within: Within = 1.0, max_age: MaxAge = 0
) -> QueueView:
    """What broker, state and workers know of one queue."""

    async def look() -> QueueView:
        found = await report_queue(app, name, within=within)
        return QueueView(
            queue=name,
            kind=found.queue.kind,
            ready=found.ready,
            in_hand=found.in_hand,
            delayed=found.delayed,
            dead=found.dead,
            consumers=found.consumers,
            paused=None if found.paused is None else _pause(found.paused),
            tasks=found.tasks,
            workers=found.workers,
        )

    return await shared_look(state, f"queue:{name}:{within}", max_age, look)


@post(
    f"{API}/queues/{{name:str}}/pause",
    status_code=200,
    permission=Permission.QUEUES_OPERATE,
    operation_id="pauseQueue",
    summary="Pause a queue",
    tags=["queues"],
)
async def pause_queue(
    app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[PauseBody | None] = None
) -> QueuePauseView:
    """Have no worker start anything of the queue until it is resumed; what runs goes on."""
    note = "" if data is None else data.note
    await caller.note_action(app, "queue.pause", subject=name, note=note)
    pauses = await pause_queues(app, [name], note=note, by=caller.name)
    return _pause(pauses[name])


@post(
    f"{API}/queues/{{name:str}}/resume",
    status_code=200,
    permission=Permission.QUEUES_OPERATE,
    operation_id="resumeQueue",
    summary="Resume a queue",
    tags=["queues"],
)
async def resume_queue(app: ServedApp, caller: CallerGiven, name: FromPath[str]) -> ResumedView:
    """Have workers take from the queue again."""
    await caller.note_action(app, "queue.resume", subject=name)
    return ResumedView(was_paused=bool(await resume_queues(app, [name])))


@post(
    f"{API}/queues/{{name:str}}/purge",
    status_code=200,
    permission=Permission.QUEUES_PURGE,
    operation_id="purgeQueue",
    summary="Delete a queue's waiting messages",
    tags=["queues"],
)
async def purge(app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[PurgeBody]) -> PurgedView:
    """Delete the messages that wait, in all priority classes; the body names the queue once more."""
    check_typed_name(data.name, name)
    await caller.note_action(app, "queue.purge", subject=name)
    return PurgedView(purged=await purge_queue(app, name))


@post(
    f"{API}/queues/{{name:str}}/move",
    status_code=200,
    permission=Permission.QUEUES_PURGE,
    operation_id="moveMessages",
    summary="Move a queue's waiting messages",
    tags=["queues"],
)
async def move(app: ServedApp, caller: CallerGiven, name: FromPath[str], data: JSONBody[MoveBody]) -> MovedView:
    """Move messages that wait to another queue, without losing one; the body names the queue once more.

    What workers have, what waits for its time, and jobs of the store stay. After an error some may be moved.
    """
    check_typed_name(data.name, name)
    facts = {"to": data.to, "count": data.count, "task": data.task}
    await caller.note_action(app, "queue.move", subject=name, after=facts)
    moved, stayed = await move_messages(app, name, data.to, count=data.count, task=data.task)
    return MovedView(moved=moved, stayed=stayed)


QUEUES: Final[tuple[Any, ...]] = (get_queues, get_queue, pause_queue, resume_queue, purge, move)


def check_typed_name(typed: str, name: str) -> None:
    """See that the body names what the path names.

    Raises:
        Problem: it names something else.
    """
    if typed != name:
        raise Problem.about("name", f"it names {typed!r}, and the path {name!r}: nothing was done")


def _groups(lines: Sequence[QueueLine], pauses: Container[str] | None) -> list[QueueGroup]:
    """The queues that people name, in the order of their first parts."""
    parts: dict[str, list[QueueLine]] = {}
    for line in lines:
        parts.setdefault(logical_queue(line.queue), []).append(line)
    return [_group(name, found, pauses) for name, found in parts.items()]


def _group(name: str, lines: Sequence[QueueLine], pauses: Container[str] | None) -> QueueGroup:
    letters = [line for line in lines if line.queue in (PARKING, UNROUTABLE, dead_letter_queue(name))]
    work = [line for line in lines if line not in letters]
    return QueueGroup(
        queue=name,
        ready=sum(line.ready for line in work),
        in_hand=_sum(line.in_hand for line in work),
        delayed=_sum(line.delayed for line in work),
        consumers=sum(line.consumers for line in work),
        is_paused=name in pauses if work and pauses is not None else None,
        dead=sum(line.ready for line in letters),
        parts=[line.queue for line in lines],
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """None where one of them is not known."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def _line(found: QueueStats, pauses: dict[str, QueuePause] | None) -> QueueLine:
    return QueueLine(
        queue=found.queue,
        ready=found.ready,
        in_hand=found.unsettled,
        delayed=found.delayed,
        consumers=found.consumers,
        is_paused=None if pauses is None else found.queue in pauses,
    )


def _pause(pause: QueuePause) -> QueuePauseView:
    return QueuePauseView(since=instant_text(pause.since), note=pause.note, by=pause.by)
