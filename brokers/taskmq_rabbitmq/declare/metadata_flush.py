"""Flush of the nodes' list of quorum queues.

A node keeps the names of its members of quorum queues in a file. A name is written with the next one, or after half a
second without one. A broker that dies before has forgotten the last declared queue, and with it confirmed messages:
RabbitMQ 4.3 has the queue empty, older ones never give it a leader again. So after new quorum queues another queue is
declared and deleted. Written names survive the broker's death, but perhaps not yet the machine's.
"""

import secrets
from collections.abc import Iterable
from typing import Final

from taskmq_rabbitmq.amqp.channels import OpenChannel
from taskmq_rabbitmq.model.entities import Argument, Entity, Queue

_NAME: Final = "taskmq.registration."
_ARGUMENTS: Final[dict[str, Argument]] = {
    "x-queue-type": "quorum",
    # A member on every node, like any other queue's members.
    "x-quorum-initial-group-size": 99,
    # The declaring process may die before it deletes the queue.
    "x-expires": 60_000,
}


def last_quorum_queue(entities: Iterable[Entity]) -> Queue | None:
    """Return the queue that nodes may forget when these are declared in order."""
    last = None
    for entity in entities:
        if isinstance(entity, Queue) and entity.arguments.get("x-queue-type") == "quorum":
            last = entity
    return last


async def flush_queue_metadata(channel: OpenChannel) -> None:
    """Return once the names of all queues declared before are written.

    Raises:
        ChannelRefused: no more queues may be declared, or none with a name that begins with `taskmq.`.
        BrokerUnavailable: the broker could not be reached.
    """
    raw = channel.raw
    name = _NAME + secrets.token_hex(4)
    await channel.request(
        lambda done: raw.queue_declare(name, durable=True, arguments=_ARGUMENTS, callback=done),
    )
    await channel.request(lambda done: raw.queue_delete(name, callback=done))
