"""A message on its way out, and its form on the wire.

`transmit` and `transmit_at_once` are the only places that write a message to a channel.
"""

import asyncio
from typing import Final

import msgspec

from taskmq.contracts.broker import HeaderValue, Outgoing
from taskmq.model.envelope import JSON
from taskmq.model.headers import ETA, REPUBLISHED, SEQUENCE, Labels
from taskmq.model.units import instant_text
from taskmq_rabbitmq.amqp.fast_connection import AmqpChannel, TemplateKey
from taskmq_rabbitmq.amqp.pika_types import BasicProperties
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.routes import PROVEN, route_to

__all__ = [
    "Pending",
    "PublishBatch",
    "sequence_of",
    "transmit",
    "transmit_at_once",
]

_OURS: Final = frozenset((SEQUENCE, REPUBLISHED, ETA))


class PublishBatch:
    """Messages of which only all together are waited for.

    Attributes:
        future: ends with what happened to each, once all have ended.
        outcomes: so far.
        left: how many have not ended.
    """

    __slots__ = ("future", "left", "outcomes")

    def __init__(self, count: int, future: asyncio.Future[list[Exception | None]]) -> None:
        self.future = future
        self.outcomes: list[Exception | None] = [None] * count
        self.left = count

    def end(self, place: int, error: Exception | None) -> None:
        """The message at that place has ended."""
        if error is not None:
            self.outcomes[place] = error
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(self.outcomes)


class Pending(msgspec.Struct, eq=False, gc=False):
    """A message that was handed in and has not ended, or whose confirm is still to come.

    Attributes:
        future: its own; None for one of a batch.
        deadline: in the loop's time.
        batch: that it is one of, at this place.
        size: of its body.
        written: it has been on the wire at least once, so the broker may have it.
        returned: the broker had no queue for it; the confirm follows.
        restored: its queue was declared again for it.
        exchange: where it was written to last.
        uncertain: it was on a channel that was lost, so it may be at the broker whatever comes later.
        suspect: it was on a channel that the broker closed over one of several messages: it goes out alone.
        refusals: how many channels the broker has closed over it.
        lacks_exchange: the last of them because its exchange does not exist.
        over: it has ended.
    """

    message: Outgoing
    future: asyncio.Future[None] | None
    deadline: float
    batch: PublishBatch | None = None
    place: int = 0
    size: int = 0
    written: bool = False
    returned: bool = False
    restored: bool = False
    exchange: str = ""
    uncertain: bool = False
    suspect: bool = False
    refusals: int = 0
    lacks_exchange: bool = False
    over: bool = False

    def __post_init__(self) -> None:
        self.size = len(self.message.body)

    def end(self, error: Exception | None) -> None:
        """End the future, unless its owner has cancelled it; or report to the batch."""
        self.over = True
        future = self.future
        if future is None:
            if self.batch is not None:
                self.batch.end(self.place, error)
        elif not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


def transmit(raw: AmqpChannel, pending: Pending, *, sequence: int, delay_ms: int) -> None:
    """Write the message to a channel in confirm mode.

    Args:
        raw: the channel.
        pending: the message.
        sequence: its number on this channel, by which a return is matched to it.
        delay_ms: how long it has to wait at the broker; not above 0: not at all.

    Raises:
        Exception: the message has no form on the wire; nothing was written.
    """
    message = pending.message
    headers: dict[str, HeaderValue | list[str]] = {SEQUENCE: sequence}
    if message.headers:
        headers.update((name, value) for name, value in message.headers.items() if name not in _OURS)
    if pending.written:
        headers[REPUBLISHED] = 1
    if delay_ms > 0:
        assert message.due is not None
        headers[ETA] = instant_text(message.due)
        # One of the sender's own is refused by the broker: only lists are keys.
        headers.setdefault(delay.WAYS, delay.ways(delay_ms))
    exchange, key = (delay.ENTER, message.queue) if delay_ms > 0 else route_to(message.queue)
    pending.exchange = exchange
    raw.publish(
        exchange,
        key,
        message.body,
        content_type=message.content_type,
        content_encoding="utf-8" if message.content_type == JSON else None,
        headers=headers,
        correlation_id=_short(message.root or message.job_id),
        message_id=_short(message.job_id),
        timestamp=None if message.enqueued is None else message.enqueued // 1000,
        kind=_short(message.task),
        app_id="taskmq",
        # On the ladder it would overtake, and be overtaken by, what is due at another time (RabbitMQ 4.0 to 4.2).
        priority=message.priority if delay_ms <= 0 else None,
    )
    pending.written = True


def transmit_at_once(raw: AmqpChannel, pending: Pending, sequence: int) -> bool:
    """`transmit` for a job that does not wait, if it is like most; else False, and nothing was written."""
    message = pending.message
    enqueued, lane = message.enqueued, raw.lane
    if lane is None or enqueued is None or pending.written:
        return False
    key: TemplateKey = (message.queue, message.task, message.content_type, message.priority)
    labels = message.headers
    if labels:
        if not isinstance(labels, Labels):
            return False
        key = (*key, *labels.items())
    head = raw.templates.get(key)
    if head is None:
        route = route_to(message.queue)
        if route.exchange not in PROVEN:
            return False
        head = raw.template(key, lane, message, route=route, sequence=SEQUENCE, kind=_short(message.task))
    job_id = message.job_id.encode()
    root = message.root.encode() if message.root else job_id
    frames = head.frames(sequence, root, job_id, enqueued // 1000, message.body)
    if frames is None:
        return False
    pending.exchange = head.exchange
    lane.send(frames)
    pending.written = True
    return True


def _short(text: str) -> str:
    """As much of a foreign job's id as AMQP's short strings hold (255 bytes); the body has all of it."""
    return text if len(text) <= 63 else text.encode()[:255].decode(errors="ignore")


def sequence_of(properties: BasicProperties) -> int | None:
    """The number that `transmit` gave to a message that has come back."""
    value = (properties.headers or {}).get(SEQUENCE)
    return value if isinstance(value, int) else None
