"""Making sure that what messages need is there.

What was found or declared is remembered for one generation of the connection: after a reconnect the broker may be
another node, or one that lost its data, so everything is looked at once more. Somebody may also delete a part of it
while everything runs, and a delayed message would wait behind that part for ever: so a process that consumes looks at
all of it now and then (`look_after`), and declares what is missing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from taskmq.errors import BrokerUnavailable, QueueMissing, TaskMQError, TopologyMismatch, UnsupportedFeature
from taskmq.model.topology import WorkQueue, dead_letter_queue, logical_queue
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connect.connection import OPEN_SECONDS, Connection
from taskmq_rabbitmq.declare.metadata_flush import flush_queue_metadata, last_quorum_queue
from taskmq_rabbitmq.model.access_refused import ACCESS_REFUSED, NOT_FOUND, whose_fault
from taskmq_rabbitmq.model.entities import (
    Binding,
    Entity,
    Exchange,
    Queue,
    delivery_binding,
    entrance,
    events,
    ladder,
    shared,
    topic_queue,
    work_queue,
)

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Done, Method, PikaChannel

__all__ = ["Declarations", "declare_all", "exists", "look_for_all", "queue_depth", "refusal"]

_log = logging.getLogger(__name__)
_PATIENCE: Final = OPEN_SECONDS
_AFTER_DELETION: Final = 0.5
_APPLY: Final = "run `taskmq topology apply` as a user with the permission to configure"
_RESOURCE_LOCKED: Final = 405
_PRECONDITION_FAILED: Final = 406
_QUORUM_PRIORITIES: Final = (4, 3)
# Bindings cannot be looked at, only declared again, which costs the broker more: at one look of so many.
_BINDINGS_EVERY: Final = 10


class EntityMissing(BrokerUnavailable):
    """Something that a declaration refers to is not there."""


class Declarations:
    """What this process has declared or found.

    Args:
        connection: where to ask; asked for before each use.
        passive: look instead of declaring: what is missing is an error, and no configure permission is needed.
        keeps: the stream of dead letters, where there is to be one.
    """

    def __init__(
        self,
        connection: Callable[[], Connection],
        *,
        passive: bool = False,
        keeps: Queue | None = None,
    ) -> None:
        self._connection = connection
        self._archive = keeps
        self._passive = passive
        self._settle = look_for_all if passive else declare_all
        # No task needs the exchange of events: where nothing may be declared, nobody asks for it here.
        self._shared = shared() if passive else (*shared(), *events())
        self._lock = asyncio.Lock()
        self._queues: dict[str, WorkQueue] = {}
        self._seen_on: tuple[Connection, int] | None = None
        self._complete: set[WorkQueue] = set()
        self._deliverable: set[str] = set()
        self._has_shared = False
        self._ladder_is_doubtful = False
        self._bound: dict[tuple[str, str], tuple[Entity, ...]] = {}
        self._looks = 0

    def declared(self, queue: str) -> bool:
        """Whether the physical `queue` was declared through here."""
        return logical_queue(queue) in self._queues

    def deliverable(self, queue: str) -> bool:
        """Whether the physical `queue` is known to get what leaves the delay ladder."""
        self._forget_other_generations()
        return queue in self._deliverable

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        """Declare what is not known to exist.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: something exists with other properties.
            UnsupportedFeature: this RabbitMQ cannot do what a queue asks for.
        """
        queues = list(queues)
        async with self._lock:
            await self._connection().opened(_PATIENCE)
            self._forget_other_generations()
            missing = {queue: work_queue(queue) for queue in queues if queue not in self._complete}
            are_new = not self._passive and await _are_new(self._connection(), missing.values())
            await self._ensure_shared()
            for queue in queues:
                if queue in missing:
                    _check_version(queue, self._connection().server_version)
                    try:
                        await self._declare(missing[queue])
                    except EntityMissing:
                        # It was there a moment ago, or on another day.
                        self._has_shared, self._ladder_is_doubtful = False, True
                        await self._ensure_shared()
                        await self._declare(missing[queue])
                    self._complete.add(queue)
                    self._deliverable.update(queue.physical)
                self._queues[queue.name] = queue
            if are_new:
                await _write_down(self._connection())

    async def bind(self, queue: str, exchange: str, patterns: Collection[str]) -> None:
        """See `taskmq.broker.Topical.bind`."""
        await self._connection().opened(_PATIENCE)
        entities = topic_queue(queue, exchange, patterns)
        await self._settle(self._connection(), entities)
        self._bound[queue, exchange] = entities

    async def look_after(self) -> None:
        """Declare what was declared here and has gone since; does nothing where nothing may be declared.

        Raises:
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: something exists with other properties.
        """
        async with self._lock:
            connection = self._connection()
            if self._passive or not connection.is_open:
                return
            wanted: list[Entity] = [*self._shared, *ladder()] if self._queues else []
            for queue in self._queues.values():
                wanted += work_queue(queue)
            for entities in self._bound.values():
                wanted += entities
            if not wanted:
                return
            self._looks += 1
            missing = await first_missing(connection, _visible(wanted))
            if missing is not None:
                _log.warning("declaring again what has gone at the broker: %s", missing)
                await asyncio.sleep(_AFTER_DELETION)
            if missing is not None or self._looks % _BINDINGS_EVERY == 0:
                await declare_all(connection, wanted)

    async def restore(self, queue: str) -> None:
        """Declare the physical `queue` again, which was declared here and has gone since.

        Raises:
            QueueMissing: it was not declared here.
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: it exists with other properties.
        """
        if (work := self._queues.get(logical_queue(queue))) is None:
            raise QueueMissing(queue)
        # A quorum queue that is declared again within some 10 ms of its deletion inherits the consumers of the
        # old one, which never get anything (3.10.8).
        await asyncio.sleep(_AFTER_DELETION)
        self._complete.discard(work)
        await self.declare([work])

    async def make_deliverable(self, queue: str) -> None:
        """See to it that the physical `queue` gets what leaves the delay ladder.

        Raises:
            QueueMissing: it does not exist and was not declared here.
            BrokerUnavailable: the broker could not be reached.
            TopologyMismatch: something exists with other properties.
        """
        if self.declared(queue) and queue != dead_letter_queue(queue):
            await self.declare([self._queues[logical_queue(queue)]])
            return
        async with self._lock:
            connection = self._connection()
            await connection.opened(_PATIENCE)
            self._forget_other_generations()
            await queue_depth(connection, queue)
            await self._ensure_shared()
            # Bound beside its entrance, the queue would get everything twice.
            has_entrance = await exists(connection, Queue(entrance(queue), {}))
            await self._declare([delivery_binding(queue, entrance(queue) if has_entrance else queue)])
            self._deliverable.add(queue)

    def give_up(self, queue: str) -> None:
        """The physical `queue` is about to be deleted: its queue is not declared again by itself."""
        if (work := self._queues.pop(logical_queue(queue), None)) is not None:
            self._complete.discard(work)
        self._deliverable.discard(queue)

    def forget(self) -> None:
        """Look at everything again, and declare the whole ladder: something known is gone."""
        self._seen_on = None
        self._ladder_is_doubtful = True

    async def _ensure_shared(self) -> None:
        if self._has_shared:
            return
        await self._declare(self._shared)
        if self._ladder_is_doubtful or not await exists(self._connection(), *_visible(ladder())):
            await self._settle(self._connection(), ladder())
        if self._archive is not None and not await exists(self._connection(), self._archive):
            await self._declare([self._archive])
        self._ladder_is_doubtful = False
        self._has_shared = True

    async def _declare(self, entities: Iterable[Entity]) -> None:
        await (look_for_all if self._passive else _declare_in_order)(self._connection(), entities)

    def _forget_other_generations(self) -> None:
        connection = self._connection()
        now = (connection, connection.generation)
        if self._seen_on != now:
            self._seen_on = now
            self._has_shared = False
            self._complete.clear()
            self._deliverable.clear()


async def declare_all(connection: Connection, entities: Iterable[Entity]) -> None:
    """Declare in this order; what exists already stays as it is, and what is new outlives the broker's death.

    Raises:
        AccessDenied: the user may not.
        BrokerUnavailable: the broker could not be reached.
        TopologyMismatch: something exists with other properties.
    """
    entities = list(entities)
    are_new = await _are_new(connection, [entities])
    await _declare_in_order(connection, entities)
    if are_new:
        await _write_down(connection)


async def _declare_in_order(connection: Connection, entities: Iterable[Entity]) -> None:
    # All but the last go out without waiting for an answer: a channel works them off in order, and the
    # first that is refused closes it.
    *before, last = entities

    async def declare(channel: OpenChannel) -> None:
        for entity in before:
            channel.send(partial(_declare, channel.raw, entity, None))
        await channel.request(partial(_declare, channel.raw, last))

    try:
        await connection.ask(declare)
    except ChannelRefused as error:
        raise refusal(error) from error


async def _are_new(connection: Connection, declarations: Iterable[Iterable[Entity]]) -> bool:
    """Whether any of these has a queue, not there yet, that nodes may forget."""
    lasts = [last for entities in declarations if (last := last_quorum_queue(entities)) is not None]
    return bool(lasts) and not await exists(connection, *lasts)


async def _write_down(connection: Connection) -> None:
    try:
        await connection.ask(flush_queue_metadata)
    except ChannelRefused as error:
        # A limit of the vhost, perhaps. What was asked for has been declared.
        _log.debug("what was declared is only written down within a second: %s", error)


async def look_for_all(connection: Connection, entities: Iterable[Entity]) -> None:
    """Make sure that queues and exchanges exist; bindings cannot be looked at.

    Raises:
        BrokerUnavailable: the broker could not be reached.
        QueueMissing: a queue does not exist.
        TopologyMismatch: an exchange does not exist.
    """
    for entity in entities:
        if isinstance(entity, Binding) or await exists(connection, entity):
            continue
        if isinstance(entity, Queue):
            raise QueueMissing(entity.name, _APPLY)
        raise TopologyMismatch(f"exchange {entity.name!r} does not exist at the broker: {_APPLY}")


async def exists(connection: Connection, *entities: Exchange | Queue) -> bool:
    """Whether they are all there. Where the user may not know, they are taken to be: their use will tell.

    Raises:
        BrokerUnavailable: the broker could not be reached.
    """
    return await first_missing(connection, entities) is None


async def first_missing(connection: Connection, entities: Iterable[Exchange | Queue]) -> str | None:
    """What the broker says of the first one that is not there; None where all are, or the user may not know.

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
        # RabbitMQ 4.3.0 asks for the permission to configure even of those who only look.
        if error.code != ACCESS_REFUSED:
            raise refusal(error) from error
    return None


def _visible(entities: Iterable[Entity]) -> list[Exchange | Queue]:
    """Those that can be looked at."""
    return [entity for entity in entities if not isinstance(entity, Binding)]


def _check_version(queue: WorkQueue, version: tuple[int, ...] | None) -> None:
    if queue.kind == "quorum" and queue.priorities == "native" and (version or ()) < _QUORUM_PRIORITIES:
        known = ".".join(map(str, version)) if version else "of no known version"
        raise UnsupportedFeature(
            f"queue {queue.name!r}: priorities='native' on a quorum queue needs RabbitMQ 4.3, this one is {known}; "
            "say kind='classic' or priorities='classes'"
        )


async def queue_depth(connection: Connection, queue: str) -> tuple[int, int]:
    """Ready messages and consumers of a physical queue.

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
    """What the broker's refusal means; a missing queue is meant where `queue` is given."""
    # A classic queue whose node is down is "not found" too: it exists, and comes back with the node.
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
        return whose_fault(error.text)
    return BrokerUnavailable(f"the broker refused: {error}")


def _declare(raw: "PikaChannel", entity: Entity, done: "Done | None") -> None:
    match entity:
        case Exchange(name, kind, arguments):
            raw.exchange_declare(name, kind, durable=True, arguments=dict(arguments), callback=done)
        case Queue(name, arguments):
            raw.queue_declare(name, durable=True, arguments=dict(arguments), callback=done)
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
