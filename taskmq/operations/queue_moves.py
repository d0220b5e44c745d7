"""Moves of waiting messages between queues: publish a copy, wait for its confirm, and only then acknowledge.

A crash between the two can repeat a job, but never lose one.
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
from taskmq.operations.audit.actions import RecordAction, record_as
from taskmq.operations.queues import find_parts, missing_queue

_BATCH: Final = 200


class Moved(NamedTuple):
    """Result of a move.

    Attributes:
        moved: messages that are now in the other queue.
        stayed: selected messages that the other queue cannot take. Either only the message or only the queue is
            ordered, or the message is malformed.
    """

    moved: int = 0
    stayed: int = 0


async def move_messages(
    app: TaskMQ,
    origin: str,
    to: str,
    *,
    count: int | None = None,
    task: str | None = None,
    by: str = "",
    record: RecordAction | None = None,
) -> Moved:
    """Move the messages that wait in `origin` now, oldest first within each class, lane and shard.

    Each message is published as if it were sent to the other queue now, by its priority, tenant or order key.
    Messages that a worker holds, delayed messages and invitations to stored jobs stay.

    Args:
        count: most messages to move.
        task: only move messages of this task; may contain `*` and `?`.
        by: who moves them, for the audit; default: the system's user.
        record: writes the audit entry; default: as `by`.

    Raises:
        InvalidOption: both are the same queue, or a name is invalid.
        QueueMissing: `origin` has no queue at the broker, or `to` is neither defined by the app nor at the broker.
        SendError: the broker refused some messages, which stay; a note says how many were moved before.
    """
    source, target = app.producer.queue(origin), app.producer.queue(to)
    if source.name == target.name:
        raise InvalidOption(f"cannot move queue {origin!r} to itself: name another queue")
    broker = app.sessions.current().broker
    known = [queue.name for queue in app.tasks.queues]
    parts = [part for part in await find_parts(broker, source) if not is_jobs_queue(part.queue)]
    if not parts:
        raise missing_queue(app, origin)
    if to not in known and not await broker.stats(target.physical):
        raise missing_queue(app, to)
    facts = {"to": to, "count": count, "task": task}
    await (record or record_as(by))(app, "queue.move", subject=origin, after=facts)
    done = Moved()
    for part in parts:
        left = part.ready
        async with broker.browse(part.queue) as browser:
            while left > 0 and (count is None or done.moved < count):
                size = min(left, _BATCH, left if count is None else count - done.moved)
                taken, done = await _move_batch(app, browser, target, size=size, task=task, done=done)
                if not taken:
                    break
                left -= taken
    return done


async def _move_batch(
    app: TaskMQ, browser: Browser, target: WorkQueue, *, size: int, task: str | None, done: Moved
) -> tuple[int, Moved]:
    """Move one batch. Returns the number of messages read and the updated result."""
    deliveries = await browser.take(size)
    selected = [(delivery, _copy(app, delivery, target, task)) for delivery in deliveries]
    movable = [(delivery, copy) for delivery, copy in selected if isinstance(copy, Outgoing)]
    stayed = sum(copy is None for _, copy in selected)
    outcomes = await app.sessions.current().publish_all([target], [copy for _, copy in movable])
    failure: SendError | None = None
    moved = 0
    for (delivery, _), error in zip(movable, outcomes, strict=True):
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
    """Build the message for the other queue; False if it is not selected, None if that queue cannot take it."""
    try:
        envelope = decode_envelope(delivery.body, delivery.content_type)
    except MalformedMessage:
        return None if task is None else False
    if task is not None and not fnmatchcase(envelope.task, task):
        return False
    try:
        # A message in a queue is already due.
        queue = app.producer.queue_for(target, replace(envelope, eta=None))
    except InvalidOption:
        return None
    priority = target.native_priority(envelope.priority)
    return copy_message(
        delivery, envelope=envelope, job_id=envelope.id, queue=queue, keeps=lambda _: True, priority=priority
    )
