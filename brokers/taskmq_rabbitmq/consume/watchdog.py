"""Comparing what this side believes to consume with what the broker says, now and then.

A consumer can be lost without a word: a quorum queue that is declared again within some 10 ms of its deletion keeps
the consumers of the old one and gives them nothing (3.10.8), and what a faulty broker, proxy or network loses is
lost. So once per interval the watchdog looks at each queue, and at everything else that was declared, since an
operator may delete it. The looks are passive, and messages cost nothing here. AMQP does not say how many messages the
broker counts as a consumer's; that is why idle consumers are renewed.

Class queues that are absent are looked for as well. RabbitMQ writes a line into its log for each look at a queue that
is not there; so where news of new queues arrives, which the look only is there to back up, looks become rare.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from taskmq.contracts.loggers import contained
from taskmq.errors import BrokerUnavailable, QueueMissing, TaskMQError
from taskmq.model.topology import is_shard
from taskmq_rabbitmq.amqp.channels import ChannelRefused
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.consume.delivery import DeliveryCounts, Feed
from taskmq_rabbitmq.consume.queue_consumer import QueueConsumer
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.declare.requests import queue_depth

__all__ = ["WATCH_SECONDS", "Advice", "Sight", "Suspicion", "Watchdog"]

WATCH_SECONDS: Final = 30.0

_log = contained(__name__)
_PATIENT: Final = 8
_MOST_PATIENT: Final = 128
_IDLE_SIGHTS: Final = 10
# Of the intervals at which an absent queue is looked for, the first ones, and then every one of so many.
_EARLY_LOOKS: Final = (1, 2, 4)
_LOOK_EVERY: Final = 10


class Sight(msgspec.Struct, frozen=True):
    """A queue and its consumer at one moment.

    Attributes:
        ready: messages that wait at the broker.
        consumers: how many the broker knows.
        received: deliveries that came in here so far.
        unsettled: those of them that are in the worker's hands.
    """

    ready: int
    consumers: int
    received: int
    unsettled: int


class Advice(msgspec.Struct, frozen=True):
    """What to do about a consumer, and why."""

    step: Literal["keep", "renew", "replace"]
    why: str = ""


_KEEP: Final = Advice("keep")


class Suspicion:
    """What follows from the sights of one consumer. Pure.

    One that the broker does not know is replaced. So is, after two sights, one that is idle although messages are
    ready. Where that did not help it takes twice as many sights the next time, and so on: beside other consumers it
    may be rightly idle (consumer priorities), and to replace one that holds nothing costs nothing.

    One that is idle and nothing is ready is renewed now and then: what a dead consumer was given does not count as
    ready, up to its prefetch.

    Args:
        has_turns: only one of the queue's consumers gets messages, and this may be another one.
    """

    def __init__(self, *, has_turns: bool = False) -> None:
        self._last: Sight | None = None
        self._first = _PATIENT if has_turns else 1
        self._patience = self._first
        self._stalled = 0
        self._idle = 0

    def begin(self) -> None:
        """The consumer is another one from here on."""
        self._last = None
        self._stalled = 0
        self._idle = 0

    def add(self, sight: Sight) -> Advice:
        """Return what follows from one more look."""
        last, self._last = self._last, sight
        if sight.received:
            self._patience = self._first
        if sight.consumers == 0:
            # A quorum queue without a leader shows nothing at all, for a moment.
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
    """Looks at the queues of one consumer object until it is stopped."""

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
        """Look at the consumers no more."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._look_after_topology()
            self._look_for_absent()
            for consumer, suspicion in self._watched:
                try:
                    await self._look(consumer, suspicion)
                except Exception:  # noqa: BLE001 - the next look is not to be lost over this one
                    _log.exception("queue %r could not be looked at", consumer.queue)

    async def _look_after_topology(self) -> None:
        try:
            await self._declarations.look_after()
        except BrokerUnavailable as error:
            _log.debug("the topology could not be looked at: %s", error)
        except TaskMQError as error:
            # Once for each reason, not at each look.
            complaint, self._complaint = self._complaint, str(error)
            if complaint != self._complaint:
                _log.warning("what is missing at the broker cannot be declared: %s", error)
        else:
            self._complaint = ""

    def _look_for_absent(self) -> None:
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
            # Its connection is mended elsewhere; a look that is not allowed shows nothing.
            _log.debug("queue %r could not be looked at: %s", consumer.queue, error)
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
            _log.debug("queue %r: the consumer was not renewed: %s", consumer.queue, error)
