"""Making the nodes write down which quorum queues they have.

A node keeps the names of its members of quorum queues in a file, to which a name goes with the next one, or after
half a second in which none came. A broker that dies before has forgotten the queue that was declared last, and with
it what it had confirmed: RabbitMQ 4.3 has the queue empty, older ones never give it a leader again. So after those
that are new another queue is declared, and deleted. What has been written survives the broker's death, perhaps not
yet that of its machine.
"""

import secrets
from collections.abc import Iterable
from typing import Final

from taskmq_rabbitmq.amqp.channels import OpenChannel
from taskmq_rabbitmq.model.entities import Argument, Entity, Queue

__all__ = ["flush_queue_metadata", "last_quorum_queue"]

_NAME: Final = "taskmq.registration."
_ARGUMENTS: Final[dict[str, Argument]] = {
    "x-queue-type": "quorum",
    # A member on every node, wherever those of other queues are.
    "x-quorum-initial-group-size": 99,
    # The process that declares it may die before it is deleted.
    "x-expires": 60_000,
}


def last_quorum_queue(entities: Iterable[Entity]) -> Queue | None:
    """The one that nodes may forget when these are declared in their order."""
    last = None
    for entity in entities:
        if isinstance(entity, Queue) and entity.arguments.get("x-queue-type") == "quorum":
            last = entity
    return last


async def flush_queue_metadata(channel: OpenChannel) -> None:
    """Return once all names are written that were declared before.

    Raises:
        ChannelRefused: no more queues may be declared, or none whose name begins with `taskmq.`.
        BrokerUnavailable: the broker could not be reached.
    """
    raw = channel.raw
    name = _NAME + secrets.token_hex(4)
    await channel.request(
        lambda done: raw.queue_declare(name, durable=True, arguments=_ARGUMENTS, callback=done),
    )
    await channel.request(lambda done: raw.queue_delete(name, callback=done))
