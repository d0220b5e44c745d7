"""A message on its way out, and its form on the wire.

`transmit` is the only place that writes a message to a channel.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from taskmq.broker import HeaderValue, Outgoing
from taskmq.envelope import JSON
from taskmq_rabbitmq.amqp import BasicProperties
from taskmq_rabbitmq.lane import AmqpChannel

__all__ = ["ETA", "REPUBLISHED", "SEQUENCE", "Pending", "Route", "destination", "sequence_of", "transmit"]

SEQUENCE: Final = "x-taskmq-pub"
REPUBLISHED: Final = "x-taskmq-republished"
ETA: Final = "x-taskmq-eta"
Route = Callable[[int, str], tuple[str, str]]
_OURS: Final = frozenset((SEQUENCE, REPUBLISHED, ETA))


class Pending:
    """A message that was handed in and whose future has not ended, or whose confirm is still to come.

    Attributes:
        deadline: in the loop's time.
        written: it has been on the wire at least once, so the broker may have it.
        returned: the broker had no queue for it; the confirm follows.
        restored: its queue was declared again for it.
        exchange: where it was written to last.
        uncertain: it was on a channel that was lost, so it may be at the broker whatever comes later.
        suspect: it was on a channel that the broker closed over one of several messages: it goes out alone.
        refusals: how many channels the broker has closed over it.
        over: its future has ended.
    """

    __slots__ = (
        "deadline",
        "exchange",
        "future",
        "message",
        "over",
        "refusals",
        "restored",
        "returned",
        "size",
        "suspect",
        "uncertain",
        "written",
    )

    def __init__(self, message: Outgoing, future: asyncio.Future[None], deadline: float) -> None:
        self.message = message
        self.future = future
        self.deadline = deadline
        self.size = len(message.body)
        self.written = False
        self.returned = False
        self.restored = False
        self.exchange = ""
        self.uncertain = False
        self.suspect = False
        self.refusals = 0
        self.over = False

    def end(self, error: Exception | None) -> None:
        """End the future, unless its owner has cancelled it."""
        self.over = True
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


def transmit(raw: AmqpChannel, pending: Pending, *, sequence: int, delay_ms: int, route: Route) -> None:
    """Write the message to a channel in confirm mode.

    Args:
        raw: the channel.
        pending: the message.
        sequence: its number on this channel, by which a return is matched to it.
        delay_ms: how long it has to wait at the broker; not above 0: not at all.
        route: exchange and routing key for a wait.

    Raises:
        Exception: the message has no form on the wire; nothing was written.
    """
    message = pending.message
    headers: dict[str, HeaderValue] = {SEQUENCE: sequence}
    if message.headers:
        headers.update((name, value) for name, value in message.headers.items() if name not in _OURS)
    if pending.written:
        headers[REPUBLISHED] = 1
    if delay_ms > 0:
        assert message.due is not None
        headers[ETA] = message.due
    exchange, key = destination(message.queue, delay_ms, route)
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


def destination(queue: str, delay_ms: int, route: Route) -> tuple[str, str]:
    """Exchange and routing key of a message that has to wait so long; not above 0: not at all."""
    return route(delay_ms, queue) if delay_ms > 0 else ("", queue)


def _short(text: str) -> str:
    """As much of a foreign job's id as AMQP's short strings hold (255 bytes); the body has all of it."""
    return text if len(text) <= 63 else text.encode()[:255].decode(errors="ignore")


def sequence_of(properties: BasicProperties) -> int | None:
    """The number that `transmit` gave to a message that has come back."""
    value = (properties.headers or {}).get(SEQUENCE)
    return value if isinstance(value, int) else None
