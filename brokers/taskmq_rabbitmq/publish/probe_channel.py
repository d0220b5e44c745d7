"""A second channel for messages whose confirms do not arrive on the first.

A node's channel numbers the messages to each quorum queue's leader and keeps them until confirmed. When two of three
nodes were killed, RabbitMQ 4.3.6 often does not resend messages lost with a leader on one of them (seen in channels'
state: all since the first lost one are kept, for queues that have a leader again on a node that was down). The queue
accepts no number after a gap, so it never again confirms anything to that channel, while it serves all others. A copy
of one message on another channel distinguishes such a channel from a queue that serves no channel.
"""

import asyncio
from functools import partial
from typing import Final

from taskmq.model.clock import Clock
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.publish.pending import Pending, transmit

LOOK_SECONDS: Final = 2.0
"""Interval after which a channel without any confirm of a queue is doubted."""


async def send_elsewhere(connection: Connection, pending: Pending, *, clock: Clock, within: float) -> bool:
    """Publish the message on a channel of its own; return whether the broker confirmed it.

    The message is marked as uncertain: the broker may have it, whatever comes later.

    Raises:
        BrokerUnavailable: the connection was lost, or no answer arrived within `within` seconds.
        ChannelRefused: the broker closed the channel over it.
    """
    channel = await connection.channel(within)
    raw = channel.raw
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    is_returned = False

    def on_return(*_: object) -> None:
        nonlocal is_returned
        is_returned = True

    def on_confirm(_tag: int, _is_multiple: bool, is_nack: bool) -> None:  # noqa: FBT001 - a positional callback of pika
        if not answer.done():
            answer.set_result(not is_nack and not is_returned)

    due = pending.message.due
    delay_ms = 0 if due is None else due - clock.now_ms()
    try:
        raw.add_on_return_callback(on_return)
        await channel.request(lambda done: raw.confirm(on_confirm, done), timeout=within)
        channel.send(partial(transmit, raw, pending, sequence=1, delay_ms=delay_ms))
        pending.uncertain = True
        return await channel.outcome(answer, timeout=within)
    finally:
        channel.close()
