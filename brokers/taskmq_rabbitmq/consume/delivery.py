"""Deliveries, and the channels that they belong to.

`Feed.receive` is the only callback for deliveries, and only a `Feed`'s `ack` and `requeue` settle one.
"""

import asyncio
import contextlib
import os
import platform
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from taskmq.errors import BrokerUnavailable
from taskmq.model.headers import BROKERS_OWN, REASON, SEQUENCE
from taskmq.model.topology import TOPIC_QUEUE, is_shard
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.amqp.received_properties import Properties, headers_of
from taskmq_rabbitmq.model.deaths import death_of, keeps_letters
from taskmq_rabbitmq.model.delay_ladder import WAYS

# Headers of its routing so far, which copies do not carry.
_ROUTING: Final = (SEQUENCE, WAYS)
_TAG_BYTES: Final = 255

_LATE_SECONDS: Final = 1.0
_NO_ARGUMENTS: Final[Mapping[str, str | int]] = {}


class DeliveryCounts:
    """Counters of one broker object.

    Attributes:
        stale_settles: deliveries that were settled after their channel had ended; the broker has redelivered them.
        replacements: consumers that were found dead without a message from the broker.
    """

    __slots__ = ("replacements", "stale_settles")

    def __init__(self) -> None:
        self.stale_settles = 0
        self.replacements = 0


class Feed:
    """A channel that consumes one queue: a generation of its deliveries.

    Args:
        returned: called with the properties of each redelivery.

    Attributes:
        queue: the physical queue.
        unsettled: deliveries that the receiver has not settled.
        received: the number of the last delivery on its channel.
    """

    __slots__ = (
        "_counts",
        "_deliver",
        "_enough",
        "_is_consumer",
        "_is_shard",
        "_late",
        "_loop",
        "_raw",
        "_returned",
        "_tag",
        "_turned_off",
        "_withdrawn",
        "channel",
        "queue",
        "received",
        "unsettled",
    )

    def __init__(
        self,
        channel: OpenChannel,
        queue: str,
        *,
        tag: str,
        deliver: "Callable[[RabbitMQDelivery], None]",
        counts: DeliveryCounts,
        loop: asyncio.AbstractEventLoop,
        returned: Callable[[Properties], None] | None = None,
    ) -> None:
        self._returned = returned
        self.channel = channel
        self.queue = queue
        self.unsettled = 0
        self.received = 0
        self._tag = tag
        self._raw = channel.raw
        self._deliver = deliver
        self._counts = counts
        self._loop = loop
        self._is_consumer = False
        self._enough = 0
        self._is_shard = is_shard(queue)
        self._turned_off = False
        self._withdrawn = False
        self._late: list[int] = []

    @property
    def ended(self) -> bool:
        """Whether its channel has ended: unsettled deliveries are redelivered."""
        return not self._raw.is_live

    async def start(self, prefetch: int, arguments: Mapping[str, str | int] = _NO_ARGUMENTS) -> None:
        """Start to consume the queue.

        Raises:
            ChannelRefused: the queue does not exist, for example.
            BrokerUnavailable: the connection was lost.
        """
        raw = self._raw
        await self.channel.request(lambda done: raw.basic_qos(prefetch_count=prefetch, callback=done))
        self._is_consumer = True
        self._enough = prefetch // 2
        # Readers of letters or topics need the routing key; for work it is known.
        is_addressed = keeps_letters(self.queue) or self.queue.startswith(TOPIC_QUEUE)
        receive = raw.receive_addressed if is_addressed else raw.receive
        receive(self.receive)
        await self.channel.request(
            lambda done: raw.basic_consume(
                self.queue, _ignore, consumer_tag=self._tag, arguments=dict(arguments), callback=done
            )
        )

    async def stop(self, timeout: float) -> None:
        """Stop consuming; return once nothing arrives any more. Until then the receiver gets deliveries.

        Raises:
            ChannelRefused: the channel is gone.
            BrokerUnavailable: the connection is gone.
        """
        raw = self._raw
        # pika does not answer for a consumer that it does not know (any more).
        if self._is_consumer:
            self._is_consumer = False
            await self.channel.request(lambda done: raw.basic_cancel(self._tag, done), timeout=timeout)

    def abandon(self) -> None:
        """Pass on nothing and close the channel; deliveries that arrive meanwhile return with it."""
        self._turned_off = True
        self.channel.close()

    async def withdraw(self, timeout: float) -> None:
        """Return deliveries that arrive from now on; return once nothing arrives any more.

        Deliveries of the receiver stay valid; the channel is closed when the last of them is settled.
        """
        self._turned_off = True
        if self._is_shard:
            await self._leave_shard(timeout)
        else:
            await self.retire(timeout)

    async def retire(self, timeout: float) -> None:
        """Stop, and return once nothing arrives any more. Until then the receiver gets deliveries.

        Deliveries of the receiver stay valid; the channel is closed when the last of them is settled.
        """
        # If the channel is gone, so is the consumer.
        with contextlib.suppress(BrokerUnavailable, ChannelRefused):
            await self.stop(timeout)
        self._turned_off = self._withdrawn = True
        if not self.unsettled:
            self.channel.close()

    async def _leave_shard(self, timeout: float) -> None:
        # Cancelled, it would leave the queue to the next consumer with deliveries still in hand. The end of the
        # channel returns them and leaves in one step.
        self._withdrawn = True
        if not self.unsettled:
            self.channel.close()
            await asyncio.wait({self.channel.ended}, timeout=timeout)

    def receive(self, tag: int, redelivered: bool, properties: Properties, body: bytes) -> None:  # noqa: FBT001 - a positional callback of pika
        """Pass on one delivery."""
        self.received = tag
        if self._turned_off:
            self._take_late(tag)
            return
        self.unsettled += 1
        if redelivered and self._returned is not None:
            self._returned(properties)
        delivery = RabbitMQDelivery(self, self.queue, tag, properties, body, redelivered)
        try:
            self._deliver(delivery)
        except Exception as error:  # noqa: BLE001 - the receiver's mistake must not cost the connection
            self._loop.call_exception_handler(
                {"message": f"the receiver of queue {self.queue!r} failed", "exception": error}
            )

    def ack(self, tag: int) -> None:
        """Acknowledge a delivery at the broker."""
        raw = self._raw
        if raw.is_live:
            self.unsettled -= 1
            # While enough is in hand the ack may wait; but the broker must send more in time.
            if self.unsettled > self._enough:
                raw.ack_batched(tag)
            else:
                raw.ack(tag)
            if self._turned_off and not self.unsettled:
                self._all_settled()
        else:
            self._counts.stale_settles += 1

    async def ack_confirmed(self, tag: int) -> bool:
        """Acknowledge a delivery; return whether the broker has confirmed it."""
        raw = self._raw
        if not raw.is_live:
            self._counts.stale_settles += 1
            return False
        raw.ack(tag)
        try:
            await self.channel.synchronise()
        except (BrokerUnavailable, ChannelRefused):
            return False
        finally:
            # Not earlier: the last one closes a withdrawn channel, and nothing would be answered.
            self.unsettled -= 1
            if self._turned_off and not self.unsettled:
                self._all_settled()
        return True

    def requeue(self, tag: int) -> None:
        """Return a delivery to its queue."""
        if self._raw.is_live:
            self._raw.requeue(tag)
            self.unsettled -= 1
            if self._turned_off and not self.unsettled:
                self._all_settled()
        else:
            self._counts.stale_settles += 1

    def _all_settled(self) -> None:
        self._give_back_late()
        if self._withdrawn:
            self.channel.close()

    def _take_late(self, tag: int) -> None:
        if self._is_shard:
            # It returns with the channel.
            return
        # It arrived after the receiver's deliveries, so it is returned after them, to keep the order. But it must not
        # wait for a receiver that finishes its work: others could run it.
        self._late.append(tag)
        if not self.unsettled:
            self._give_back_late()
        elif len(self._late) == 1:
            self._loop.call_later(_LATE_SECONDS, self._give_back_late)

    def _give_back_late(self) -> None:
        if self._raw.is_live:
            for tag in self._late:
                self._raw.requeue(tag)
        self._late.clear()


def _ignore(*_: object) -> None:
    """Placeholder for pika's consumer callback: deliveries go through `AmqpChannel.receive`."""


class RabbitMQDelivery(msgspec.Struct, eq=False, gc=False):
    """A `taskmq.contracts.broker.Delivery`.

    Attributes:
        tag: its number on its channel.
        settled: whether `ack` or `requeue` was called.
    """

    _feed: Feed
    queue: str
    tag: int
    _properties: Properties
    body: bytes
    redelivered: bool
    settled: bool = False

    def __repr__(self) -> str:
        settled = " settled" if self.settled else ""
        return f"<Delivery {self.tag} of {self.queue!r} {self.message_id}{settled}>"

    @property
    def content_type(self) -> str | None:
        return self._properties.content_type

    @property
    def message_id(self) -> str | None:
        return self._properties.message_id

    @property
    def task(self) -> str | None:
        return self._properties.type

    @property
    def routing_key(self) -> str | None:
        """See `taskmq.contracts.broker.Routed`."""
        return self._properties.routing_key

    @property
    def headers(self) -> Mapping[str, object]:
        received = headers_of(self._properties)
        # pika's numbers are of a class of its own, which encoders refuse.
        headers = {
            name: int(value) if type(value) is not bool and isinstance(value, int) else value
            for name, value in received.items()
            if isinstance(name, str) and name not in _ROUTING and not name.startswith(BROKERS_OWN)
        }
        if REASON not in headers and keeps_letters(self.queue):
            return {**death_of(received, self._properties.routing_key), **headers}
        return headers

    @property
    def revoked(self) -> bool:
        """See `taskmq.contracts.broker.Revocable`."""
        return not self.settled and self._feed.ended

    def ack(self) -> None:
        if not self.settled:
            self.settled = True
            self._feed.ack(self.tag)

    async def ack_confirmed(self) -> bool:
        if self.settled:
            return False
        self.settled = True
        return await self._feed.ack_confirmed(self.tag)

    def requeue(self) -> None:
        if not self.settled:
            self.settled = True
            self._feed.requeue(self.tag)


def consumer_tag(queue: str, number: int) -> str:
    """Return a consumer tag that identifies the process for people; this process has not used it before."""
    host = platform.node()[:60]
    before, after = f"tmq.{host}.{os.getpid()}.", f".{number}"
    room = _TAG_BYTES - len(before.encode()) - len(after)
    return f"{before}{queue.encode()[:room].decode(errors='ignore')}{after}"
