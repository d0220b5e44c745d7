"""Messages of exchanges and of other systems' queues: consumed by all replicas, and acknowledged once delivered."""

from typing import Final

from taskmq.beat.inbox import Inbox
from taskmq.client.plugins import open_source
from taskmq.contracts.broker import Broker, Consumer, Delivery, Subscription
from taskmq.contracts.broker_abilities import Topical
from taskmq.contracts.source import MessageSource, SourceQueue
from taskmq.errors import TaskMQError, UnsupportedFeature
from taskmq.model.clock import Clock
from taskmq.reactions import MessageComes, QueueMessageComes, Reaction, ReactionDelivery

_PREFETCH: Final = 100


def source_queue(app: str, reaction: Reaction, number: int, condition: QueueMessageComes, *, url: str) -> SourceQueue:
    """Return the source of messages for one condition of a reaction.

    Args:
        url: the app's own broker.
    """
    return SourceQueue(
        url=url if condition.url is None else str(condition.url),
        name=reaction.queue_of(app, number),
        exchange=condition.exchange,
        keys=condition.keys,
        prefetch=condition.prefetch,
        client=f"taskmq beat {app} {reaction.name}",
    )


class Topic:
    """Messages of a topic exchange for one condition of a reaction."""

    def __init__(
        self,
        reaction: Reaction,
        number: int,
        condition: MessageComes,
        *,
        app: str,
        delivery: ReactionDelivery,
        broker: Broker,
        clock: Clock,
    ) -> None:
        self.queue = reaction.queue_of(app, number)
        self._reaction = reaction
        self._condition = condition
        self._broker = broker
        self._inbox = Inbox(reaction, number, origin=self.queue, delivery=delivery, broker=broker, clock=clock)
        self._consumer: Consumer | None = None

    async def look(self) -> None:
        """Ensure that it listens.

        Raises:
            UnsupportedFeature: the broker has no topic exchanges.
        """
        if self._consumer is not None and self._consumer.healthy:
            return
        broker = self._broker
        if not isinstance(broker, Topical):
            raise UnsupportedFeature(
                f"reaction {self._reaction.name!r} waits for messages, and the broker {broker.address} has no topic "
                "exchanges: use RabbitMQ"
            )
        try:
            await broker.bind(self.queue, exchange=self._condition.exchange, patterns=self._condition.patterns)
            if self._consumer is None:
                subscription = Subscription(self.queue, _PREFETCH)
                self._consumer = await broker.consume([subscription], self._receive)
            self._inbox.listens()
        except TaskMQError as error:
            self._inbox.complain(error, "it does not listen")

    async def stop(self) -> None:
        """Give messages in hand a few seconds, and return the rest."""
        await self._inbox.stop()
        if self._consumer is not None:
            await self._consumer.stop()

    def _receive(self, delivery: Delivery) -> None:
        if self._condition.matches(getattr(delivery, "routing_key", None) or ""):
            self._inbox.receive(delivery)
        else:
            # Bound by an earlier version of the code.
            delivery.ack()


class ForeignQueue:
    """Messages of another system's queue for one condition of a reaction."""

    def __init__(
        self,
        reaction: Reaction,
        number: int,
        queue: SourceQueue,
        *,
        delivery: ReactionDelivery,
        broker: Broker,
        clock: Clock,
    ) -> None:
        self._source: MessageSource = open_source(queue)
        origin = f"{queue.name} at {self._source.address}"
        self._inbox = Inbox(reaction, number, origin=origin, delivery=delivery, broker=broker, clock=clock)

    async def look(self) -> None:
        """Ensure that it listens, and reconnect if the connection was lost.

        Raises:
            UnsupportedFeature: the source does not support what its URL requires.
        """
        try:
            await self._source.listen(self._inbox.receive)
            self._inbox.listens()
        except UnsupportedFeature:
            raise
        except TaskMQError as error:
            self._inbox.complain(error, "it does not listen")

    async def stop(self) -> None:
        """Give messages in hand a few seconds, and return the rest."""
        await self._inbox.stop()
        await self._source.stop()
