"""Making sure that what messages need is there.

What was found or declared is remembered for one generation of the connection: after a reconnect the broker may be
another node, or one that lost its data, so everything is looked at once more.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from taskmq.errors import BrokerUnavailable, QueueMissing, TaskMQError, TopologyMismatch
from taskmq.topology import WorkQueue, dead_letter_queue, logical_queue
from taskmq_rabbitmq.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connection import OPEN_SECONDS, Connection
from taskmq_rabbitmq.topology import (
    Binding,
    Entity,
    Exchange,
    Queue,
    delivery_binding,
    ladder,
    ladder_marker,
    shared,
    work_queue,
)

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp import Done, Method, PikaChannel

__all__ = ["Declarations", "queue_depth", "refusal"]

_PATIENCE: Final = OPEN_SECONDS
_AFTER_DELETION: Final = 0.5
_NOT_FOUND: Final = 404
_RESOURCE_LOCKED: Final = 405
_PRECONDITION_FAILED: Final = 406


class Declarations:
    """What this process has declared or found.

    Args:
        connection: where to ask; asked for before each use.
    """

    def __init__(self, connection: Callable[[], Connection]) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()
        self._queues: dict[str, WorkQueue] = {}
        self._seen_on: tuple[Connection, int] | None = None
        self._complete: set[WorkQueue] = set()
        self._deliverable: set[str] = set()
        self._has_shared = False
        self._ladder_is_doubtful = False

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
        """
        queues = list(queues)
        async with self._lock:
            await self._connection().opened(_PATIENCE)
            self._forget_other_generations()
            await self._ensure_shared()
            for queue in queues:
                if queue not in self._complete:
                    await self._declare(work_queue(queue))
                    self._complete.add(queue)
                    self._deliverable.update(queue.physical)
                self._queues[queue.name] = queue

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
            await self._declare([delivery_binding(queue)])
            self._deliverable.add(queue)

    def forget(self) -> None:
        """Look at everything again, and declare the whole ladder: something known is gone."""
        self._seen_on = None
        self._ladder_is_doubtful = True

    async def _ensure_shared(self) -> None:
        if self._has_shared:
            return
        await self._declare(shared())
        if self._ladder_is_doubtful or not await self._finds_ladder():
            await self._declare(ladder())
        self._ladder_is_doubtful = False
        self._has_shared = True

    async def _finds_ladder(self) -> bool:
        try:
            await self._connection().ask(_look_for_ladder)
        except ChannelRefused as error:
            if error.code != _NOT_FOUND:
                raise refusal(error) from error
            return False
        return True

    async def _declare(self, entities: Iterable[Entity]) -> None:
        # All but the last go out without waiting for an answer: a channel works them off in order, and the
        # first that is refused closes it.
        *before, last = entities

        async def declare(channel: OpenChannel) -> None:
            for entity in before:
                channel.send(partial(_declare, channel.raw, entity, None))
            await channel.request(partial(_declare, channel.raw, last))

        try:
            await self._connection().ask(declare)
        except ChannelRefused as error:
            raise refusal(error) from error

    def _forget_other_generations(self) -> None:
        connection = self._connection()
        now = (connection, connection.generation)
        if self._seen_on != now:
            self._seen_on = now
            self._has_shared = False
            self._complete.clear()
            self._deliverable.clear()


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
    if error.code == _NOT_FOUND and queue is not None and "home node" not in error.text:
        return QueueMissing(queue)
    if error.code in (_RESOURCE_LOCKED, _PRECONDITION_FAILED):
        return TopologyMismatch(
            f"{error.text}; nothing was changed: compare with `taskmq topology diff`, then delete it or use "
            "another name"
        )
    return BrokerUnavailable(f"the broker refused: {error}")


async def _look_for_ladder(channel: OpenChannel) -> None:
    marker = ladder_marker()
    await channel.request(
        lambda done: channel.raw.exchange_declare(marker.name, marker.kind, passive=True, callback=done)
    )


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
