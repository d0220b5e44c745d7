"""Moving what waits in a queue to another one: publish the copy, wait for its confirm, and only then take it off.

A crash between the two repeats a job, and loses none.
"""

from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Browser, Delivery, Outgoing
from taskmq.contracts.republish import copy_message
from taskmq.errors import InvalidOption, MalformedMessage, SendError
from taskmq.model.envelope import decode_envelope
from taskmq.model.topology import WorkQueue, is_jobs_queue
from taskmq.operations.queues import find_parts, missing_queue

__all__ = ["Moved", "move_messages"]

_PIECE: Final = 200


class Moved(NamedTuple):
    """What a move has come to.

    Attributes:
        moved: messages that are in the other queue now.
        stayed: of those that were meant, how many that queue cannot take: they have no order key and it is ordered,
            or they have one and it is not, or no process can read them.
    """

    moved: int = 0
    stayed: int = 0


async def move_messages(
    app: TaskMQ, origin: str, to: str, *, count: int | None = None, task: str | None = None
) -> Moved:
    """Move the messages that wait in `origin` now, the oldest of each class, lane and shard first.

    Each goes to where it would go if it was sent to the other queue now: by its priority, tenant or order key.
    What a worker has, what waits for its time, and the invitations to jobs of the store stay.

    Args:
        count: at most so many.
        task: only messages of tasks of this name, with `*` and `?`.

    Raises:
        InvalidOption: both are the same queue, or one cannot be called that.
        QueueMissing: one of them is not there; the other one is neither the app's nor at the broker.
        SendError: the broker did not take some, which are where they were; a note says how many were moved before.
    """
    source, target = app.producer.queue(origin), app.producer.queue(to)
    if source.name == target.name:
        raise InvalidOption(f"queue {origin!r} is moved to itself: name another one")
    broker = app.sessions.current().broker
    known = [queue.name for queue in app.tasks.queues]
    parts = [part for part in await find_parts(broker, source) if not is_jobs_queue(part.queue)]
    if not parts:
        raise missing_queue(app, origin)
    if to not in known and not await broker.stats(target.physical):
        raise missing_queue(app, to)
    done = Moved()
    for part in parts:
        left = part.ready
        async with broker.browse(part.queue) as look:
            while left > 0 and (count is None or done.moved < count):
                size = min(left, _PIECE, left if count is None else count - done.moved)
                taken, done = await _move_some(app, look, target, size=size, task=task, done=done)
                if not taken:
                    break
                left -= taken
    return done


async def _move_some(
    app: TaskMQ, look: Browser, target: WorkQueue, *, size: int, task: str | None, done: Moved
) -> tuple[int, Moved]:
    """How many messages were looked at, and what has become of the move with them."""
    deliveries = await look.take(size)
    meant = [(delivery, _copy(app, delivery, target, task)) for delivery in deliveries]
    going = [(delivery, copy) for delivery, copy in meant if isinstance(copy, Outgoing)]
    stayed = sum(copy is None for _, copy in meant)
    outcomes = await app.sessions.current().publish_all([target], [copy for _, copy in going])
    failure: SendError | None = None
    moved = 0
    for (delivery, _), error in zip(going, outcomes, strict=True):
        if error is None:
            delivery.ack()
            moved += 1
        else:
            failure = failure or error
    done = Moved(done.moved + moved, done.stayed + stayed)
    if failure is not None:
        failure.add_note(f"{done.moved} messages were moved before")
        raise failure
    return len(deliveries), done


def _copy(app: TaskMQ, delivery: Delivery, target: WorkQueue, task: str | None) -> Outgoing | bool | None:
    """The message for the other queue; False where it is not meant, None where that queue cannot take it."""
    try:
        envelope = decode_envelope(delivery.body, delivery.content_type)
    except MalformedMessage:
        return None if task is None else False
    if task is not None and not fnmatchcase(envelope.task, task):
        return False
    try:
        # What waits in a queue waits for no time any more.
        place = app.producer.place(target, replace(envelope, eta=None))
    except InvalidOption:
        return None
    priority = target.native_priority(envelope.priority)
    return copy_message(
        delivery, envelope=envelope, job_id=envelope.id, queue=place, keeps=lambda _: True, priority=priority
    )
