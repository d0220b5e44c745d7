"""A second channel for messages whose confirms do not come on the first.

A node's channel keeps for each quorum queue what it has sent to the queue's leader, numbered. RabbitMQ 4.3.6, when a
leader was killed and leads again after its node has come back, sometimes does not send it what was lost (two of three
nodes killed: one time in five). The queue does not take numbers after a gap, so it never again confirms anything to
that channel, while it serves all others. A copy of one message for each of the queues, on another channel, tells such
a channel from a queue that serves nobody.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from taskmq.clock import Clock
from taskmq_rabbitmq.connection import Connection
from taskmq_rabbitmq.outgoing import Pending, Route, sequence_of, transmit

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp import BasicProperties, Method, PikaChannel

__all__ = ["LOOK_SECONDS", "send_elsewhere"]

LOOK_SECONDS: Final = 2.0
"""How often to look for messages that were there at the last look."""


async def send_elsewhere(
    connection: Connection, messages: Sequence[Pending], *, clock: Clock, route: Route, within: float
) -> dict[int, bool]:
    """Publish the messages on a channel of their own; those that the broker has answered when it answers the first.

    The messages are marked as uncertain: the broker may have them, whatever comes later.

    Returns:
        The places of the answered ones, and whether each has been confirmed rather than refused.

    Raises:
        BrokerUnavailable: the connection went, or nothing was answered within `within` seconds.
        ChannelRefused: the broker closed the channel over one of them.
    """
    channel = await connection.channel(within)
    raw = channel.raw
    answers: dict[int, bool] = {}
    returned: set[int] = set()
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_return(_raw: "PikaChannel", _method: "Method", properties: "BasicProperties", _body: bytes) -> None:
        if (number := sequence_of(properties)) is not None:
            returned.add(number)

    def on_confirm(last: int, is_multiple: bool, is_nack: bool) -> None:  # noqa: FBT001
        for number in range(1 if is_multiple else last, last + 1):
            answers.setdefault(number, not is_nack and number not in returned)
        if not first.done():
            first.set_result(None)

    try:
        raw.add_on_return_callback(on_return)
        await channel.request(lambda done: raw.confirm(on_confirm, done), timeout=within)
        for number, pending in enumerate(messages, 1):
            due = pending.message.due
            delay_ms = 0 if due is None else due - clock.now_ms()
            channel.send(partial(transmit, raw, pending, sequence=number, delay_ms=delay_ms, route=route))
            pending.uncertain = True
        await channel.outcome(first, timeout=within)
    finally:
        channel.close()
    return {number - 1: is_confirmed for number, is_confirmed in answers.items()}
