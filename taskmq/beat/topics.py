"""Messages of topic exchanges: kept in a durable queue that all replicas consume, and acknowledged once delivered."""

import asyncio
import hashlib
import logging
import uuid
from typing import Final

from taskmq.contracts.broker import Broker, Consumer, Delivery, Subscription, Topical
from taskmq.contracts.republish import copy_message
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import SendError, StateUnavailable, TaskMQError, TooLarge, UnsupportedFeature
from taskmq.model import headers as header
from taskmq.model.clock import Clock
from taskmq.model.topology import PARKING, TOPIC_QUEUE
from taskmq.reactions import MessageArrived, MessageComes, Reaction, ReactionDelivery
from taskmq.reactions.model.pending import RecordedEvent

__all__ = ["Topic", "topic_queue"]

_log = logging.getLogger("taskmq.beat")

_PREFETCH: Final = 100
_PAUSE: Final = 1.0
_LAST_WORDS: Final = 5.0
_SEND_SECONDS: Final = 10.0


def topic_queue(app: str, reaction: Reaction, number: int) -> str:
    """The queue in which messages wait for one condition of a reaction."""
    name = f"{TOPIC_QUEUE}{app}.{reaction.name}"
    return name if len(reaction.plan.conditions) == 1 else f"{name}.{number}"


class Topic:
    """What one condition of a reaction listens to."""

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
        self.queue = topic_queue(app, reaction, number)
        self._reaction = reaction
        self._number = number
        self._condition = condition
        self._delivery = delivery
        self._broker = broker
        self._clock = clock
        self._consumer: Consumer | None = None
        self._working = TaskSet(f"message of {self.queue}", failure=f"a message of {self.queue} was not looked at")
        self._is_stopping = asyncio.Event()
        self._complaint = ""

    async def look(self) -> None:
        """See to it that it listens.

        Raises:
            UnsupportedFeature: the broker has no topic exchanges.
        """
        if self._consumer is not None and self._consumer.healthy:
            return
        broker = self._broker
        if not isinstance(broker, Topical):
            raise UnsupportedFeature(
                f"reaction {self._reaction.name!r} waits for messages, and the broker {broker.address} has no topic "
                "exchanges: that takes RabbitMQ"
            )
        try:
            await broker.bind(self.queue, exchange=self._condition.exchange, patterns=self._condition.patterns)
            if self._consumer is None:
                subscription = Subscription(self.queue, _PREFETCH)
                self._consumer = await broker.consume([subscription], self._receive)
            self._complaint = ""
        except TaskMQError as error:
            self._complain(f"it does not listen: {error}")

    async def stop(self) -> None:
        """Give back what is not delivered."""
        self._is_stopping.set()
        if self._consumer is not None:
            await self._consumer.stop()
        await self._working.aclose(grace=_LAST_WORDS)

    def _receive(self, delivery: Delivery) -> None:
        self._working.start(self._handle(delivery))

    async def _handle(self, delivery: Delivery) -> None:
        key: str = getattr(delivery, "routing_key", None) or ""
        if not self._condition.fits(key):
            # Bound by an earlier version of the code.
            delivery.ack()
            return
        noted = _noted(delivery, key)
        try:
            while not await self._is_done(delivery, noted):
                await pause(self._is_stopping, _PAUSE)
                if self._is_stopping.is_set():
                    break
            else:
                delivery.ack()
        finally:
            # Nothing where it is settled.
            delivery.requeue()

    async def _is_done(self, delivery: Delivery, noted: RecordedEvent) -> bool:
        """Whether the message may go."""
        try:
            try:
                await self._delivery.deliver(self._reaction, self._number, noted)
            except TooLarge as error:
                await self._park(delivery, error)
        except (SendError, StateUnavailable) as error:
            self._complain(f"messages wait: {error}")
            return False
        self._complaint = ""
        return True

    async def _park(self, delivery: Delivery, error: TooLarge) -> None:
        """Put aside what can never be delivered, as it came."""
        _log.error("reaction %s: message %s parked: %s", self._reaction.name, delivery.message_id, error)
        letter = copy_message(
            delivery,
            job_id=delivery.message_id or str(uuid.uuid4()),
            queue=PARKING,
            headers={
                header.REASON: "too large",
                header.ORIGIN: self.queue,
                header.DIED: self._clock.now_ms(),
            },
        )
        await self._broker.publish(letter, timeout=_SEND_SECONDS)

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            _log.warning("reaction %s: %s", self._reaction.name, complaint)


def _noted(delivery: Delivery, key: str) -> RecordedEvent:
    message_id = delivery.message_id
    if message_id is None:
        # Nothing tells it from another one that says the same.
        told = uuid.uuid4().hex
    else:
        told = hashlib.sha256(b"\n".join((message_id.encode(), key.encode(), delivery.body))).hexdigest()[:32]
    return RecordedEvent(
        told,
        MessageArrived(
            routing_key=key, body=delivery.body, message_id=message_id, content_type=delivery.content_type
        ),
    )
