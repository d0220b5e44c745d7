"""A message on its way out, and its form on the wire.

`transmit` is the only place that writes a message to a channel.
"""

import asyncio
from typing import Final

from taskmq.broker import HeaderValue, Outgoing
from taskmq.envelope import JSON
from taskmq_rabbitmq import delay
from taskmq_rabbitmq.amqp import BasicProperties
from taskmq_rabbitmq.lane import AmqpChannel

__all__ = ["ETA", "REPUBLISHED", "SEQUENCE", "Pending", "sequence_of", "transmit"]

SEQUENCE: Final = "x-taskmq-pub"
REPUBLISHED: Final = "x-taskmq-republished"
ETA: Final = "x-taskmq-eta"
_OURS: Final = frozenset((SEQUENCE, REPUBLISHED, ETA))


class Pending:
    """A message that was handed in and whose future has not ended, or whose confirm is still to come.

    Attributes:
        deadline: in the loop's time.
        written: it has been on the wire at least once, so the broker may have it.
        returned: the broker had no queue for it; the confirm follows.
        restored: its queue was declared again for it.
        refusals: how many channels were closed by the broker while it was unconfirmed on them.
        over: its future has ended.
    """

    __slots__ = (
        "deadline",
        "future",
        "message",
        "over",
        "refusals",
        "restored",
        "returned",
        "size",
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
    headers: dict[str, HeaderValue] = {SEQUENCE: sequence}
    if message.headers:
        headers.update((name, value) for name, value in message.headers.items() if name not in _OURS)
    if pending.written:
        headers[REPUBLISHED] = 1
    if delay_ms > 0:
        assert message.due is not None
        headers[ETA] = message.due
        exchange, key = delay.route(delay_ms, message.queue)
    else:
        exchange, key = "", message.queue
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
    )
    pending.written = True


def _short(text: str) -> str:
    """As much of a foreign job's id as AMQP's short strings hold (255 bytes); the body has all of it."""
    return text if len(text) <= 63 else text.encode()[:255].decode(errors="ignore")


def sequence_of(properties: BasicProperties) -> int | None:
    """The number that `transmit` gave to a message that has come back."""
    value = (properties.headers or {}).get(SEQUENCE)
    return value if isinstance(value, int) else None
