"""Periodic comparison of this side's consumers with the broker's.

A consumer can be lost without notice: a quorum queue that is declared again within some 10 ms of its deletion keeps
the consumers of the old one and sends them nothing (3.10.8), and a faulty broker, proxy or network may lose anything.
So once per interval the watchdog checks each queue, and everything else that was declared, because an operator may
delete it. The checks are passive, and cost nothing per message. AMQP does not report how many messages the broker
counts as a consumer's; therefore idle consumers are renewed.

Absent class queues are checked as well. RabbitMQ logs every check of a missing queue. So if announcements of new
queues arrive here, the checks, which only back them up, become rare.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from taskmq.contracts.loggers import contained_logger
from taskmq.errors import BrokerUnavailable, QueueMissing, TaskMQError
from taskmq.model.topology import is_shard
from taskmq_rabbitmq.amqp.channels import ChannelRefused
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.consume.delivery import DeliveryCounts, Feed
from taskmq_rabbitmq.consume.queue_consumer import QueueConsumer
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.declare.requests import queue_depth

WATCH_SECONDS: Final = 30.0

_log = contained_logger(__name__)
_PATIENT: Final = 8
_MOST_PATIENT: Final = 128
_IDLE_SIGHTS: Final = 10
# Numbers of the first intervals at which an absent queue is checked; after them every so many.
_EARLY_LOOKS: Final = (1, 2, 4)
_LOOK_EVERY: Final = 10


class Sight(msgspec.Struct, frozen=True):
    """A queue and its consumer at one moment.

    Attributes:
        ready: messages that wait at the broker.
        consumers: number of consumers that the broker knows.
        received: deliveries received so far.
        unsettled: those of them that are not settled.
    """

    ready: int
    consumers: int
    received: int
    unsettled: int


class Advice(msgspec.Struct, frozen=True):
    """An action on a consumer, and the reason."""

    step: Literal["keep", "renew", "replace"]
    why: str = ""


_KEEP: Final = Advice("keep")


class Suspicion:
    """Conclusions from the sights of one consumer. Pure.

    A consumer that the broker does not know is replaced. So is, after two sights, one that is idle although messages
    are ready. If that does not help, the next replacement takes twice as many sights, and so on: next to other
    consumers it may be idle rightly (consumer priorities), and replacing a consumer without deliveries costs nothing.

    An idle consumer without ready messages is renewed now and then: messages sent to a dead consumer do not count as
    ready, up to its prefetch.

    Args:
        has_turns: whether only one of the queue's consumers gets messages, which may be another one.
    """

    def __init__(self, *, has_turns: bool = False) -> None:
        self._last: Sight | None = None
        self._first = _PATIENT if has_turns else 1
        self._patience = self._first
        self._stalled = 0
        self._idle = 0

    def begin(self) -> None:
        """Start again, because the consumer was replaced."""
        self._last = None
        self._stalled = 0
        self._idle = 0

    def add(self, sight: Sight) -> Advice:
        """Return the action that follows from one more sight."""
        last, self._last = self._last, sight
        if sight.received:
            self._patience = self._first
        if sight.consumers == 0:
            # A quorum queue without a leader briefly shows nothing at all.
            if sight.ready or (last is not None and last.consumers == 0):
                return Advice("replace", f"the broker knows no consumer of it, and {sight.ready:,} messages wait")
            return _KEEP
        if last is None or last.unsettled or last.received != sight.received:
            self._stalled = self._idle = 0
            return _KEEP
        self._idle += 1
        self._stalled = self._stalled + 1 if last.ready and sight.ready else 0
        if self._stalled >= self._patience:
            self._patience = min(2 * self._patience, _MOST_PATIENT)
            return Advice("replace", f"{sight.ready:,} messages are ready and nothing comes")
        return Advice("renew") if self._idle >= _IDLE_SIGHTS else _KEEP


class Watchdog:
    """Checks the queues of one consumer object until it is stopped."""

    def __init__(
        self,
        consumers: Sequence[QueueConsumer],
        *,
        connection: Connection,
        declarations: Declarations,
        counts: DeliveryCounts,
        interval: float,
        is_told: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_told = is_told
        self._intervals = 0
        self._watched = [(consumer, Suspicion(has_turns=is_shard(consumer.queue))) for consumer in consumers]
        self._feeds: dict[QueueConsumer, Feed] = {}
        self._connection = connection
        self._declarations = declarations
        self._complaint = ""
        self._counts = counts
        self._interval = interval
        self._task = asyncio.create_task(self._watch(), name="taskmq consumer watchdog")

    async def stop(self) -> None:
        """Stop checking the consumers."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._check_topology()
            self._check_absent()
            for consumer, suspicion in self._watched:
                try:
                    await self._look(consumer, suspicion)
                except Exception:  # noqa: BLE001 - the next look is not to be lost over this one
                    _log.exception("checking queue %r failed", consumer.queue)

    async def _check_topology(self) -> None:
        try:
            await self._declarations.look_after()
        except BrokerUnavailable as error:
            _log.debug("checking the topology failed: %s", error)
        except TaskMQError as error:
            # Once for each reason, not for each check.
            complaint, self._complaint = self._complaint, str(error)
            if complaint != self._complaint:
                _log.warning("cannot declare missing queues and exchanges: %s", error)
        else:
            self._complaint = ""

    def _check_absent(self) -> None:
        self._intervals += 1
        count = self._intervals
        if not self._is_told() or count in _EARLY_LOOKS or count % _LOOK_EVERY == 0:
            for consumer, _ in self._watched:
                consumer.look()

    async def _look(self, consumer: QueueConsumer, suspicion: Suspicion) -> None:
        if (feed := consumer.feed) is None:
            return
        if self._feeds.get(consumer) is not feed:
            self._feeds[consumer] = feed
            suspicion.begin()
        try:
            ready, consumers = await queue_depth(self._connection, consumer.queue)
        except QueueMissing:
            advice = Advice("replace", "the queue is gone")
        except BrokerUnavailable as error:
            # Its connection recovers elsewhere; a refused check proves nothing.
            _log.debug("checking queue %r failed: %s", consumer.queue, error)
            return
        else:
            advice = suspicion.add(Sight(ready, consumers, feed.received, feed.unsettled))
        if consumer.feed is not feed:
            return
        if advice.step == "replace":
            self._counts.replacements += 1
            consumer.replace(f"the consumer seems to be lost: {advice.why}")
        elif advice.step == "renew" and not feed.unsettled:
            await self._renew(consumer)

    async def _renew(self, consumer: QueueConsumer) -> None:
        try:
            await consumer.renew()
        except (BrokerUnavailable, ChannelRefused) as error:
            _log.debug("queue %r: renewing the consumer failed: %s", consumer.queue, error)
