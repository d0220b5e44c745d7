"""A second channel for messages whose confirms do not come on the first.

A node's channel keeps for each quorum queue what it has sent to the queue's leader, numbered. RabbitMQ 4.3.6, when
two of three nodes were killed, often does not send again what was lost with a leader that was on one of them (seen
in channels' state: all since the first lost one is kept, for queues that lead again on a node that was down). The
queue takes no number after a gap, so it never again confirms anything to that channel, while it serves all others. A
copy of one message on another channel tells such a channel from a queue that serves no channel.
"""

import asyncio
from functools import partial
from typing import Final

from taskmq.model.clock import Clock
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.publish.pending import Pending, transmit

__all__ = ["LOOK_SECONDS", "send_elsewhere"]

LOOK_SECONDS: Final = 2.0
"""A channel that confirms nothing of a queue from one look to the next is doubted."""


async def send_elsewhere(connection: Connection, pending: Pending, *, clock: Clock, within: float) -> bool:
    """Publish the message on a channel of its own; whether the broker has confirmed it rather than refused.

    The message is marked as uncertain: the broker may have it, whatever comes later.

    Raises:
        BrokerUnavailable: the connection went, or no answer came within `within` seconds.
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
