"""Messages that come before their time: they go on waiting instead of being handed over.

Only with `?delay=levels`, where a delay is made of several waits. A message is published again, with the same message
id, into the next level, and the one that came is acknowledged after the confirm: a crash between the two can double
it, never lose it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from taskmq.broker import Delivery, HeaderValue, Outgoing
from taskmq.clock import Clock
from taskmq.envelope import JSON, decode_envelope
from taskmq.errors import MalformedMessage
from taskmq_rabbitmq.outgoing import ETA

__all__ = ["Reentry"]

_PAUSE: Final = 1.0


class Reentry:
    """A receiver of deliveries that hands on what is due.

    Args:
        deliver: gets what is due.
        publish: sends a message; its future ends within a deadline.
        clock: where the time is compared.
    """

    def __init__(
        self,
        deliver: Callable[[Delivery], None],
        publish: Callable[[Outgoing], "asyncio.Future[None]"],
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._deliver = deliver
        self._publish = publish
        self._clock = clock
        self._loop = loop

    def __call__(self, delivery: Delivery) -> None:
        due = delivery.headers.get(ETA)
        if isinstance(due, int) and due > self._clock.now_ms():
            self._send_back(delivery, due)
        else:
            self._deliver(delivery)

    def _send_back(self, delivery: Delivery, due: int) -> None:
        def done(future: "asyncio.Future[None]") -> None:
            if future.cancelled() or future.exception() is not None:
                # Not at once: it would be here again at once.
                self._loop.call_later(_PAUSE, delivery.requeue)
            else:
                delivery.ack()

        self._publish(_copy(delivery, due)).add_done_callback(done)


def _copy(delivery: Delivery, due: int) -> Outgoing:
    content_type = delivery.content_type or JSON
    enqueued: int | None = None
    root: str | None = None
    try:
        envelope = decode_envelope(delivery.body, content_type)
        enqueued, root = envelope.enqueued, envelope.root
    except MalformedMessage:
        # Whoever sent it: it waits like any other, and its worker parks it.
        pass
    headers: dict[str, HeaderValue] = {
        name: value
        for name, value in delivery.headers.items()
        if isinstance(value, str | int) and not isinstance(value, bool)
    }
    return Outgoing(
        queue=delivery.queue,
        body=delivery.body,
        content_type=content_type,
        job_id=delivery.message_id or "",
        task=delivery.task or "",
        due=due,
        enqueued=enqueued,
        root=root,
        headers=headers,
    )
