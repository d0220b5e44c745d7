"""Dead letters: looking at them, and sending them again.

A dead letter is the job's message as it last was, with what happened in its headers. Looking takes letters
out of the queue for a moment and gives them back in their order. Replaying publishes the copy, waits for its
confirm and only then takes the letter off: a crash between the two repeats a job, and loses none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from taskmq.broker import Broker, Delivery, HeaderValue, Outgoing
from taskmq.envelope import amend, decode_envelope
from taskmq.errors import InvalidOption, MalformedMessage, SendError
from taskmq.topology import PARKING, UNROUTABLE, check_queue_name, dead_letter_queue, logical_queue

__all__ = ["DeadLetter", "browse", "letter_queue", "replay"]

_REPLAYED: Final = "x-taskmq-replayed"
_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead job.

    Attributes:
        queue: the physical queue it came from.
        died: when, in ms since the epoch; None when nobody wrote it down.
        replayed: how often it was sent again before.
    """

    job_id: str
    task: str
    queue: str
    attempt: int
    reason: str
    error: str
    traceback: str
    died: int | None
    worker: str
    replayed: int
    body: bytes
    content_type: str | None


def letter_queue(queue: str) -> str:
    """Where the dead letters of `queue` are; the two shared queues of lost messages are letters themselves.

    Raises:
        InvalidOption: a queue cannot be called that.
    """
    return queue if queue in (PARKING, UNROUTABLE) else dead_letter_queue(check_queue_name(queue))


async def browse(broker: Broker, queue: str, *, limit: int) -> list[DeadLetter]:
    """The oldest `limit` dead letters of `queue`; they stay where they are.

    Raises:
        InvalidOption: a queue cannot be called that.
        QueueMissing: there is no such queue.
    """
    async with broker.hold(letter_queue(queue), limit=limit) as deliveries:
        return [_letter(delivery) for delivery in deliveries]


async def replay(
    broker: Broker, queue: str, *, limit: int, timeout: float, choose: Callable[[DeadLetter], bool] | None = None
) -> int:
    """Send dead letters of `queue` back to where they came from, from their first attempt on; how many.

    Looks at as many letters as there are when it starts, at most `limit`, so that jobs which die again at
    once are not replayed for ever.

    Raises:
        InvalidOption: a queue cannot be called that, or it is the one for unroutable messages.
        QueueMissing: there is no such queue.
        SendError: a copy was not confirmed: its letter is where it was, the others of the same batch were
            replayed, and later batches were not begun.
    """
    name = letter_queue(queue)
    if name == UNROUTABLE:
        raise InvalidOption(f"{UNROUTABLE} holds messages whose queue has gone: nobody wrote down where to send them")
    found = await broker.stats([name])
    left = min(limit, found[0].ready) if found else limit
    if choose is not None:
        # Those not chosen go back to the front: only a single hold sees each letter once.
        return await _replay_held(broker, name, left, timeout, choose)
    count = 0
    while left > 0:
        done = await _replay_held(broker, name, min(left, _BATCH), timeout, choose)
        if done == 0:
            break
        count += done
        left -= done
    return count


async def _replay_held(
    broker: Broker, name: str, limit: int, timeout: float, choose: Callable[[DeadLetter], bool] | None
) -> int:
    count = 0
    async with broker.hold(name, limit=max(limit, 1)) as deliveries:
        chosen = [delivery for delivery in deliveries if choose is None or choose(_letter(delivery))]
        # All are on their way before the first is awaited; each letter goes only after its own confirm.
        sent = [(delivery, broker.publish(_copy(delivery), timeout=timeout)) for delivery in chosen]
        failure: SendError | None = None
        for delivery, confirmed in sent:
            try:
                await confirmed
            except SendError as error:
                # The others are on their way already: kept, their letters would be sent twice.
                failure = failure or error
            else:
                delivery.ack()
                count += 1
    if failure is not None:
        raise failure
    return count


def _letter(delivery: Delivery) -> DeadLetter:
    headers = delivery.headers
    try:
        envelope = decode_envelope(delivery.body, delivery.content_type)
        job_id, task, attempt = envelope.id, envelope.task, envelope.attempt
    except MalformedMessage:
        job_id, task, attempt = "", delivery.task or "", 0

    def text(name: str) -> str:
        value = headers.get(f"x-taskmq-{name}")
        return value if isinstance(value, str) else ""

    died = headers.get("x-taskmq-died")
    return DeadLetter(
        job_id=job_id or delivery.message_id or "",
        task=task,
        queue=text("origin") or logical_queue(delivery.queue),
        attempt=attempt,
        reason=text("reason"),
        error=text("error"),
        traceback=text("traceback"),
        died=died if isinstance(died, int) else None,
        worker=text("worker"),
        replayed=_count(headers.get(_REPLAYED)),
        body=delivery.body,
        content_type=delivery.content_type,
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def _copy(delivery: Delivery) -> Outgoing:
    letter = _letter(delivery)
    headers: dict[str, HeaderValue] = {
        name: value
        for name, value in delivery.headers.items()
        if isinstance(value, str | int) and not name.startswith("x-taskmq-")
    }
    try:
        body = amend(delivery.body, delivery.content_type, {"attempt": 1, "eta": None})
    except MalformedMessage:
        body = delivery.body
    return Outgoing(
        queue=letter.queue,
        body=body,
        content_type=delivery.content_type or "",
        job_id=letter.job_id,
        task=letter.task,
        headers={**headers, _REPLAYED: letter.replayed + 1},
    )
