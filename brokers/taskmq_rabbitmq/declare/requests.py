"""Requests to declare and to check objects, each on a throw-away channel, without memory."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from taskmq.contracts.loggers import contained_logger
from taskmq.errors import BrokerUnavailable, QueueMissing, TaskMQError, TopologyMismatch
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.declare.metadata_flush import flush_queue_metadata, last_quorum_queue
from taskmq_rabbitmq.model.access_refused import ACCESS_REFUSED, NOT_FOUND, access_error
from taskmq_rabbitmq.model.entities import Binding, Entity, Exchange, Queue, declared_arguments

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Done, Method, PikaChannel

_log = contained_logger(__name__)
APPLY: Final = "run `taskmq topology apply` as a user with configure permission"
_RESOURCE_LOCKED: Final = 405
_PRECONDITION_FAILED: Final = 406


class EntityMissing(BrokerUnavailable):
    """An object that a declaration refers to does not exist."""


async def declare_all(connection: Connection, entities: Iterable[Entity]) -> None:
    """Declare in this order; existing objects stay unchanged, and new ones survive the broker's death.

    Raises:
        AccessDenied: the user may not declare.
        BrokerUnavailable: the broker could not be reached.
        TopologyMismatch: an object exists with other properties.
    """
    entities = list(entities)
    is_new = await are_new(connection, [entities])
    await declare_in_order(connection, entities)
    if is_new:
        await flush_metadata(connection)


async def declare_in_order(connection: Connection, entities: Iterable[Entity]) -> None:
    # All but the last are sent without waiting for answers: a channel processes them in order, and the first refusal
    # closes it.
    *before, last = entities

    async def declare(channel: OpenChannel) -> None:
        for entity in before:
            channel.send(partial(_declare, channel.raw, entity, None, app=connection.app))
        await channel.request(partial(_declare, channel.raw, last, app=connection.app))

    try:
        await connection.ask(declare)
    except ChannelRefused as error:
        raise refusal(error) from error


async def are_new(connection: Connection, declarations: Iterable[Iterable[Entity]]) -> bool:
    """Return whether any of these has a new queue that nodes may forget."""
    lasts = [last for entities in declarations if (last := last_quorum_queue(entities)) is not None]
    return bool(lasts) and not await exists(connection, *lasts)


async def flush_metadata(connection: Connection) -> None:
    try:
        await connection.ask(flush_queue_metadata)
    except ChannelRefused as error:
        # A limit of the vhost, perhaps. The requested objects are declared.
        _log.debug("declarations are not flushed to disk at once: %s", error)


async def check_all(connection: Connection, entities: Iterable[Entity]) -> None:
    """Check that queues and exchanges exist; bindings cannot be checked.

    Raises:
        BrokerUnavailable: the broker could not be reached.
        QueueMissing: a queue does not exist.
        TopologyMismatch: an exchange does not exist.
    """
    for entity in entities:
        if isinstance(entity, Binding) or await exists(connection, entity):
            continue
        if isinstance(entity, Queue):
            raise QueueMissing(entity.name, APPLY)
        raise TopologyMismatch(f"exchange {entity.name!r} does not exist at the broker: {APPLY}")


async def exists(connection: Connection, *entities: Exchange | Queue) -> bool:
    """Return whether all of them exist. If the user may not check, assume so: their use will show.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    return await first_missing(connection, entities) is None


async def first_missing(connection: Connection, entities: Iterable[Exchange | Queue]) -> str | None:
    """Return the broker's error for the first missing object; None if all exist, or the user may not check.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    *before, last = entities

    async def look(channel: OpenChannel) -> None:
        for entity in before:
            channel.send(partial(_look, channel.raw, entity, None))
        await channel.request(partial(_look, channel.raw, last))

    try:
        await connection.ask(look)
    except ChannelRefused as error:
        if error.code == NOT_FOUND and "home node" not in error.text:
            return error.text
        # RabbitMQ 4.3.0 requires the configure permission even for a check.
        if error.code != ACCESS_REFUSED:
            raise refusal(error) from error
    return None


def visible(entities: Iterable[Entity]) -> list[Exchange | Queue]:
    """Return the objects that can be checked."""
    return [entity for entity in entities if not isinstance(entity, Binding)]


async def queue_depth(connection: Connection, queue: str) -> tuple[int, int]:
    """Return the numbers of ready messages and of consumers of a physical queue.

    Raises:
        QueueMissing: it does not exist.
        BrokerUnavailable: the broker could not be reached.
    """

    async def look(channel: OpenChannel) -> "Method":
        return await channel.request(lambda done: channel.raw.queue_declare(queue, passive=True, callback=done))

    try:
        found = await connection.ask(look)
    except ChannelRefused as error:
        raise refusal(error, queue) from error
    return found.message_count, found.consumer_count


def refusal(error: ChannelRefused, queue: str | None = None) -> TaskMQError:
    """Return the error for the broker's refusal; with `queue` it may mean a missing queue."""
    # A classic queue whose node is down is "not found", too: it exists, and returns with the node.
    if error.code == NOT_FOUND and queue is not None and "home node" not in error.text:
        return QueueMissing(queue)
    if error.code == NOT_FOUND and "home node" not in error.text:
        return EntityMissing(f"the broker refused: {error}")
    if error.code in (_RESOURCE_LOCKED, _PRECONDITION_FAILED):
        return TopologyMismatch(
            f"{error.text}; nothing was changed: compare with `taskmq topology diff`, then delete it or use "
            "another name"
        )
    if error.code == ACCESS_REFUSED:
        return access_error(error.text)
    return BrokerUnavailable(f"the broker refused: {error}")


def _declare(raw: "PikaChannel", entity: Entity, done: "Done | None", *, app: str) -> None:
    match entity:
        case Exchange(name, kind, arguments):
            raw.exchange_declare(name, kind, durable=True, arguments=dict(arguments), callback=done)
        case Queue(name):
            raw.queue_declare(name, durable=True, arguments=declared_arguments(entity, app), callback=done)
        case Binding(source, target, key, "exchange"):
            raw.exchange_bind(target, source, key, callback=done)
        case Binding(source, target, key):
            raw.queue_bind(target, source, key, callback=done)
        case _:
            assert_never(entity)


def _look(raw: "PikaChannel", entity: Exchange | Queue, done: "Done | None") -> None:
    match entity:
        case Queue(name):
            raw.queue_declare(name, passive=True, callback=done)
        case Exchange(name, kind):
            raw.exchange_declare(name, kind, passive=True, callback=done)
        case _:
            assert_never(entity)
