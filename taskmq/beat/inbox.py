"""Messages for one condition of a reaction, from any source, and their processing by a beat."""

import asyncio
import hashlib
import logging
import uuid
from typing import Final

from taskmq.contracts.broker import Broker, Delivery
from taskmq.contracts.republish import copy_message
from taskmq.durable.service import pause
from taskmq.durable.task_set import TaskSet
from taskmq.errors import SendError, StateUnavailable, TaskMQError, TooLarge
from taskmq.model import headers as header
from taskmq.model.clock import Clock
from taskmq.model.topology import PARKING
from taskmq.model.units import instant_text
from taskmq.reactions import MessageArrived, Reaction, ReactionDelivery
from taskmq.reactions.model.pending import RecordedEvent

_log = logging.getLogger("taskmq.beat")

_PAUSE: Final = 1.0
_LAST_WORDS: Final = 5.0
_SEND_SECONDS: Final = 10.0


class Inbox:
    """Acknowledges a message once its job is confirmed, or once it counts in the state; until then it is in hand.

    Args:
        number: number of the condition.
        origin: the queue of the messages.
        broker: the broker that parks undeliverable messages.
    """

    def __init__(
        self,
        reaction: Reaction,
        number: int,
        *,
        origin: str,
        delivery: ReactionDelivery,
        broker: Broker,
        clock: Clock,
    ) -> None:
        self._reaction = reaction
        self._number = number
        self._origin = origin
        self._delivery = delivery
        self._broker = broker
        self._clock = clock
        self._working = TaskSet(f"message of {origin}", failure=f"a message of {origin} was not looked at")
        self._is_stopping = asyncio.Event()
        self._complaint = ""

    def receive(self, delivery: Delivery) -> None:
        """Process the message; it is settled here, or, after `stop`, by the end of its consumer."""
        if not self._is_stopping.is_set():
            self._working.start(self._handle(delivery))

    async def stop(self) -> None:
        """Give messages in hand a few seconds, and return the rest; stop the consumer next."""
        self._is_stopping.set()
        await self._working.aclose(grace=_LAST_WORDS)

    def listens(self) -> None:
        """Record that messages arrive."""
        self._complaint = ""

    def complain(self, error: TaskMQError, what: str) -> None:
        """Log a problem, once until it changes."""
        complaint = f"{what}: {error}"
        if complaint != self._complaint:
            self._complaint = complaint
            _log.warning("reaction %s: %s", self._reaction.name, complaint)

    async def _handle(self, delivery: Delivery) -> None:
        key: str = getattr(delivery, "routing_key", None) or ""
        noted = _event_of(delivery, key)
        try:
            while not await self._is_done(delivery, noted):
                await pause(self._is_stopping, _PAUSE)
                if self._is_stopping.is_set():
                    break
            else:
                delivery.ack()
        finally:
            # Does nothing if it is settled.
            delivery.requeue()

    async def _is_done(self, delivery: Delivery, noted: RecordedEvent) -> bool:
        """Process the message; return whether it may be acknowledged."""
        try:
            try:
                await self._delivery.deliver(self._reaction, self._number, noted)
            except TooLarge as error:
                await self._park(delivery, error)
        except (SendError, StateUnavailable) as error:
            self.complain(error, "messages wait")
            return False
        self._complaint = ""
        return True

    async def _park(self, delivery: Delivery, error: TooLarge) -> None:
        """Park a message that can never be delivered, unchanged."""
        _log.error("reaction %s: message %s parked: %s", self._reaction.name, delivery.message_id, error)
        letter = copy_message(
            delivery,
            job_id=delivery.message_id or str(uuid.uuid4()),
            queue=PARKING,
            headers={
                header.REASON: "too large",
                header.ORIGIN: self._origin,
                header.DIED: instant_text(self._clock.now_ms()),
            },
        )
        await self._broker.publish(letter, timeout=_SEND_SECONDS)


def _event_of(delivery: Delivery, key: str) -> RecordedEvent:
    message_id = delivery.message_id
    if message_id is None:
        # Nothing distinguishes it from another one with the same content.
        told = uuid.uuid4().hex
    else:
        told = hashlib.sha256(b"\n".join((message_id.encode(), key.encode(), delivery.body))).hexdigest()[:32]
    return RecordedEvent(
        told,
        MessageArrived(
            routing_key=key, body=delivery.body, message_id=message_id, content_type=delivery.content_type
        ),
    )
