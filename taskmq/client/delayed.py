"""Delayed jobs in the state: `TaskMQ(delay="state")`.

Delayed messages in the broker can be neither listed nor changed. In the state they can: a message waits in a
`taskmq.contracts.stores.DelayStore` until a worker's relay publishes it.
"""

from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace as changed

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.stores import DelayStore, ErrorRecord, ResultRecord, WaitingMessage
from taskmq.errors import InvalidOption
from taskmq.model.envelope import amend, decode_envelope
from taskmq.model.states import JobState
from taskmq.model.topology import MOST_LANES, WorkQueue, check_queue_name, lanes_of, logical_queue, shard_queue
from taskmq.model.units import LAST_INSTANT, Duration, instant_ms, parse_duration, to_datetime, to_ms

_FIELDS: Final = tuple(name for name in Outgoing.__struct_fields__ if name not in ("due", "headers"))
_SHARDS: Final = 100


class WaitingJob(msgspec.Struct, frozen=True):
    """A delayed job in the state.

    Attributes:
        queue: the app queue.
        due: when it is published to its queue.
        enqueued: when it was first sent.
    """

    id: str
    task: str
    queue: str
    due: datetime
    enqueued: datetime | None


async def waiting_jobs(store: DelayStore, *, limit: int, task: str | None, queue: str | None) -> list[WaitingJob]:
    """Return up to `limit` delayed jobs, earliest first, of one task or queue if given."""
    queues = None if queue is None else _possible_queues(check_queue_name(queue))
    return [_job(message) for message in await store.list(limit=limit, task=task, queues=queues)]


async def cancel(store: DelayStore, job_id: str) -> WaitingMessage | None:
    """Remove a delayed job. Returns it, or None if it is not delayed (any more) or already being published."""
    found = await store.find(job_id)
    return found if found is not None and await store.cancel(job_id) else None


def cancelled_record(message: WaitingMessage, *, reason: str, now: int) -> ResultRecord:
    """Build the result record of a cancelled delayed job, for callers that await its result."""
    return ResultRecord(
        job_id=message.job_id,
        task=message.task,
        state=JobState.CANCELLED,
        attempt=decode_envelope(message.body, message.content_type).attempt,
        error=ErrorRecord(type_name="JobCancelled", message=reason, traceback=""),
        finished=now,
    )


async def reschedule(store: DelayStore, job_id: str, *, due: int) -> bool:
    """Make a job due at another time (ms). Returns False if it is not delayed (any more) or already being
    published.
    """
    seen: WaitingMessage | None = None
    while (found := await store.find(job_id)) is not None and found != seen:
        # The worker reads the time from the body.
        body = amend(found.body, found.content_type, {"eta": due})
        if await store.swap(found, changed(found, due=due, body=body)):
            return True
        # Another caller changed the message. If it is unchanged on the next read, it is being published.
        seen = found
    return False


def due_instant(*, delay: Duration | None, eta: datetime | None, now: int) -> int:
    """Return the due time (ms) from `delay` after `now`, or from `eta`.

    Raises:
        InvalidOption: both or neither are given, or `eta` has no time zone.
    """
    if delay is not None and eta is None:
        return min(now + to_ms(parse_duration(delay, what="delay")), LAST_INSTANT)
    if eta is None or delay is not None:
        raise InvalidOption("give either delay or eta")
    return instant_ms(eta, what="eta")


def to_waiting(message: Outgoing, *, due: int) -> WaitingMessage:
    """Convert an outgoing message for the state."""
    facts = {name: getattr(message, name) for name in _FIELDS}
    return WaitingMessage(**facts, due=due, headers=dict(message.headers))


def to_outgoing(message: WaitingMessage) -> Outgoing:
    """Convert a due message for immediate publishing."""
    return Outgoing(**{name: getattr(message, name) for name in _FIELDS}, headers=message.headers)


def _possible_queues(queue: str) -> set[str]:
    """Return every RabbitMQ queue that `queue` may consist of."""
    shards = (shard_queue(queue, number) for number in range(_SHARDS))
    return {*WorkQueue(queue).physical, *shards, *lanes_of(queue, MOST_LANES)}


def _job(message: WaitingMessage) -> WaitingJob:
    return WaitingJob(
        id=message.job_id,
        task=message.task,
        queue=logical_queue(message.queue),
        due=to_datetime(message.due),
        enqueued=None if message.enqueued is None else to_datetime(message.enqueued),
    )
