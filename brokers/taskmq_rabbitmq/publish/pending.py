"""A message that is being published, and its encoding.

Only `transmit` and `transmit_at_once` write a message to a channel.
"""

import asyncio
from typing import Final

import msgspec

from taskmq.contracts.broker import HeaderValue, Outgoing
from taskmq.model.envelope import JSON
from taskmq.model.headers import ETA, REPUBLISHED, SEQUENCE, Labels
from taskmq.model.units import instant_text
from taskmq_rabbitmq.amqp.fast_connection import AmqpChannel
from taskmq_rabbitmq.amqp.pika_types import BasicProperties
from taskmq_rabbitmq.amqp.publish_template import APP_ID, TemplateKey, template_for
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.routes import PROVEN, route_to

_OURS: Final = frozenset((SEQUENCE, REPUBLISHED, ETA))


class PublishBatch:
    """Messages with one shared future.

    Attributes:
        future: ends with the result of each, once all have ended.
        outcomes: results so far.
        left: number of messages that have not ended.
    """

    __slots__ = ("future", "left", "outcomes")

    def __init__(self, count: int, future: asyncio.Future[list[Exception | None]]) -> None:
        self.future = future
        self.outcomes: list[Exception | None] = [None] * count
        self.left = count

    def end(self, place: int, error: Exception | None) -> None:
        """End the message at that position."""
        if error is not None:
            self.outcomes[place] = error
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(self.outcomes)


class Pending(msgspec.Struct, eq=False, gc=False):
    """A message that was accepted and has not ended, or whose confirm is outstanding.

    Attributes:
        future: its own; None for a message of a batch.
        deadline: in the loop's time.
        batch: the batch that it belongs to, and its position there.
        size: of its body.
        written: whether it was written at least once, so the broker may have it.
        returned: whether it was returned as unroutable; the confirm follows.
        restored: whether its queue was declared again for it.
        exchange: the last exchange it was written to.
        uncertain: whether it was on a lost channel, so it may be at the broker whatever comes later.
        suspect: whether it was on a channel closed over one of several messages: it is published alone.
        refusals: number of channels that the broker closed over it.
        lacks_exchange: whether the last one was closed because its exchange does not exist.
        over: whether it has ended.
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
        sequence: its number on this channel, which identifies it if it is returned.
        delay_ms: wait at the broker; 0 or less: none.

    Raises:
        Exception: the message cannot be encoded; nothing was written.
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
        # A value of the sender's own is refused by the broker: only lists are keys.
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
        app_id=APP_ID,
        # On the ladder it would reorder messages that are due at other times (RabbitMQ 4.0 to 4.2).
        priority=message.priority if delay_ms <= 0 else None,
    )
    pending.written = True


def transmit_at_once(raw: AmqpChannel, pending: Pending, sequence: int) -> bool:
    """Write a typical job that does not wait; return False, and write nothing, if it needs `transmit`."""
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
        head = template_for(
            message,
            channel=raw.channel_number,
            route=route,
            sequence=SEQUENCE,
            kind=_short(message.task),
            frame_max=lane.params.frame_max,
        )
        raw.keep_template(key, head)
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
    """Cut a foreign job's id to AMQP's short strings (255 bytes); the body has all of it."""
    return text if len(text) <= 63 else text.encode()[:255].decode(errors="ignore")


def sequence_of(properties: BasicProperties) -> int | None:
    """Return the number that `transmit` gave to a returned message."""
    value = (properties.headers or {}).get(SEQUENCE)
    return value if isinstance(value, int) else None
