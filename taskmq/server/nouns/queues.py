"""`/queues`: what is in them, pausing, resuming and emptying them."""

from typing import Annotated, Any, Final

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.client.queues import QueuePause
from taskmq.contracts.broker import QueueStats
from taskmq.model.identity import Permission
from taskmq.operations.queues import (
    find_pauses,
    list_queues,
    pause_queues,
    purge_queue,
    report_queue,
    resume_queues,
)
from taskmq.server.inputs import CallerGiven, Note, ServedApp, ShortText, instant_text
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["QUEUE_HANDLERS"]


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at the broker.

    Attributes:
        ready: messages that wait for a worker.
        in_hand: messages in workers' hands; None where nobody can tell.
        is_paused: nothing of the queue is started; None where nobody can tell.
    """

    queue: str
    ready: int
    in_hand: int | None
    consumers: int
    is_paused: bool | None


class QueueLines(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, and how many jobs and retries wait for their time in all of them."""

    items: list[QueueLine]
    delayed: int


class QueuePauseView(msgspec.Struct, frozen=True, kw_only=True):
    """Since when and why a queue is paused."""

    since: str | None
    note: str


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one queue.

    Attributes:
        kind: quorum or classic.
        delayed: jobs and retries that wait for their time; None where the broker does not tell whose they are.
        dead: dead letters; None where the queue does not exist yet.
    """

    queue: str
    kind: str
    ready: int
    in_hand: int
    delayed: int | None
    dead: int | None
    consumers: int
    paused: QueuePauseView | None
    tasks: list[str]
    workers: list[str]


class PauseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a queue is paused, for others to see."""

    note: Note = ""


class PurgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of what is emptied, once more: what is purged is gone."""

    name: ShortText


class PurgedView(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were deleted."""

    purged: int


class ResumedView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the queue was paused before."""

    was_paused: bool


Within = Annotated[float, QueryParameter(ge=0.01, le=5, description="Seconds that workers have to answer.")]


@get(
    f"{API}/queues",
    permission=Permission.QUEUES_READ,
    operation_id="listQueues",
    summary="List queues",
    tags=["queues"],
)
async def get_queues(app: ServedApp, within: Within = 1.0) -> QueueLines:
    """The app's queues in all their priority classes, and their dead-letter queues."""
    found = await list_queues(app, within=within)
    pauses = await find_pauses(app)
    return QueueLines(items=[_line(each, pauses) for each in found.queues], delayed=found.delayed)


@get(
    f"{API}/queues/{{name:str}}",
    permission=Permission.QUEUES_READ,
    operation_id="getQueue",
    summary="Get a queue",
    tags=["queues"],
)
async def get_queue(app: ServedApp, name: FromPath[str], within: Within = 1.0) -> QueueView:
    """What broker, state and workers know of one queue."""
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
    pauses = await pause_queues(app, [name], note=note)
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
    check_typed_name(data, name)
    await caller.note_action(app, "queue.purge", subject=name)
    return PurgedView(purged=await purge_queue(app, name))


QUEUE_HANDLERS: Final[tuple[Any, ...]] = (get_queues, get_queue, pause_queue, resume_queue, purge)


def check_typed_name(body: PurgeBody, name: str) -> None:
    """See that the body names what is purged.

    Raises:
        Problem: it names something else.
    """
    if body.name != name:
        raise Problem.about("name", f"it names {body.name!r}, and the path {name!r}: nothing was purged")


def _line(found: QueueStats, pauses: dict[str, QueuePause] | None) -> QueueLine:
    return QueueLine(
        queue=found.queue,
        ready=found.ready,
        in_hand=found.unsettled,
        consumers=found.consumers,
        is_paused=None if pauses is None else found.queue in pauses,
    )


def _pause(pause: QueuePause) -> QueuePauseView:
    return QueuePauseView(since=instant_text(pause.since), note=pause.note)
