"""Consumer of one physical queue, which recovers by itself.

    starting -> consuming -> (lost) -> starting ...        consuming -> paused -> starting ...        any -> stopped
    starting -> absent -> (it may exist) -> starting

A class queue may not exist yet: then it is absent, until a check finds it.

It has its own channel and its own task, so that its failures (a deleted queue, a lost leader, a consumer timeout) do
not affect others. It resumes on a new channel with a new consumer tag: RabbitMQ 4.3 closes the connection if a tag
that it cancelled itself is used again.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from taskmq.contracts.broker import Delivery, Subscription
from taskmq.contracts.loggers import contained_logger
from taskmq.errors import AccessDenied, BrokerUnavailable, QueueMissing, TaskMQError
from taskmq.model.topology import is_on_demand, is_shard
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connect.backoff import patience, reconnect_backoff
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS
from taskmq_rabbitmq.consume.delivery import DeliveryCounts, Feed, consumer_tag
from taskmq_rabbitmq.consume.letter_queue import LetterQueue
from taskmq_rabbitmq.consume.losses import PRECONDITION_FAILED, explain_cancel, explain_end
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.declare.requests import refusal
from taskmq_rabbitmq.model import consumer_timeout as timeouts

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import MethodFrame

_log = contained_logger(__name__)
_CANCEL_SECONDS: Final = 5.0
_GOOD_SECONDS: Final = 10.0
# Not every node may know a declared queue immediately.
_LOOKS: Final = 4
_LOOK_SECONDS: Final = 0.1


class QueueConsumer:
    """Calls `deliver` for each message of one queue.

    Attributes:
        queue: the physical queue.
        is_paused: whether it waits for `resume`.
    """

    def __init__(
        self,
        subscription: Subscription,
        deliver: Callable[[Delivery], None],
        *,
        connection: Connection,
        declarations: Declarations,
        counts: DeliveryCounts,
        numbers: Iterator[int],
        loop: asyncio.AbstractEventLoop,
        timeout_of_nodes: float | None = timeouts.DEFAULT_SECONDS,
    ) -> None:
        self.queue = subscription.queue
        self._timeout_of_nodes = timeout_of_nodes
        self._subscription = subscription
        self._deliver = deliver
        self._connection = connection
        self._declarations = declarations
        self._counts = counts
        self._numbers = numbers
        self._loop = loop
        self._feed: Feed | None = None
        self._retiring: Feed | None = None
        self._lost: asyncio.Future[str] = loop.create_future()
        self._takes_timeout = True
        self._upkeep: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None
        self.is_paused = subscription.is_paused
        self._stopped = False
        self._complaint = ""
        self._news: asyncio.Event | None = None
        self._looks = 1
        self._letters = LetterQueue(self.queue, declarations, loop)
        # The generation of the connection in which it tries to consume, and since when.
        self._trying: int | None = None
        self._since = 0.0

    def __repr__(self) -> str:
        idle = "paused" if self.is_paused else "absent" if self.is_absent else "starting"
        state = "stopped" if self._stopped else "consuming" if self.consuming else idle
        return f"<{self.queue} {state}>"

    @property
    def consuming(self) -> bool:
        """Whether it consumes, as far as this side knows."""
        return self.feed is not None

    @property
    def is_absent(self) -> bool:
        """Whether the queue did not exist at the last check."""
        return self._news is not None and not self._stopped

    def look(self) -> None:
        """Consume an absent queue if it exists now."""
        if self._news is not None:
            self._news.set()

    def expect(self) -> None:
        """Consume the queue, which was declared, if it was absent."""
        self._looks = _LOOKS
        self.look()

    @property
    def feed(self) -> Feed | None:
        """The feed that it consumes with at present."""
        feed = self._feed
        if self._stopped or feed is None or self._lost.done() or feed.channel.ended.done():
            return None
        return feed

    @property
    def settle_within(self) -> float | None:
        """Seconds after which the broker takes a delivery back; None: never, as far as is known."""
        if not self._takes_timeout:
            return None
        return timeouts.settle_within(
            self._subscription.longest, self._connection.server_version, of_nodes=self._timeout_of_nodes
        )

    async def start(self) -> None:
        """Return once it consumes, or a class queue is absent; from then on it recovers by itself.

        Raises:
            QueueMissing: the queue does not exist and was not declared through this broker object.
            AccessDenied: the user may not consume it.
            BrokerUnavailable: the broker could not be reached.
        """
        give_up = self._loop.time() + OPEN_SECONDS
        while self._feed is None and self._news is None:
            await self._connection.wait_open(give_up - self._loop.time())
            try:
                await self._begin()
            except AccessDenied:
                raise
            except QueueMissing:
                if not is_on_demand(self.queue):
                    raise
                self._news = asyncio.Event()
            except BrokerUnavailable:
                # The connection may be lost meanwhile; it reopens.
                if self._loop.time() >= give_up:
                    raise
        self._upkeep = self._loop.create_task(self._keep(), name=f"taskmq consumer of {self.queue}")

    async def stop(self) -> None:
        """See `Consumer.stop`; called once."""
        self._stopped = True
        await self._withdraw()

    async def pause(self) -> None:
        """See `Consumer.pause`."""
        if self.is_paused or self._stopped:
            return
        self.is_paused = True
        await self._withdraw()
        # Deliveries in hand are settled on its channel, which ends with the last of them.
        self._feed = self._retiring = self._news = None

    async def resume(self) -> None:
        """See `Consumer.resume`; raises like `start`."""
        if not self.is_paused or self._stopped or self._resuming is not None:
            return
        self._resuming = resuming = self._loop.create_task(self.start(), name=f"taskmq resumes {self.queue}")
        try:
            await asyncio.wait({resuming})
        finally:
            resuming.cancel()
            self._resuming = None
        # Cancelled by `stop`.
        if not resuming.cancelled():
            resuming.result()
            self.is_paused = False

    async def _withdraw(self) -> None:
        for task in (self._resuming, self._upkeep, self._letters.making):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        for feed in (self._retiring, self._feed):
            if feed is not None:
                await feed.withdraw(_CANCEL_SECONDS)

    async def renew(self) -> None:
        """Consume on a new channel, and then stop on the old one.

        No delivery is passed on twice; deliveries of the old channel can be settled as before. Messages that the
        broker was about to send to the old one arrive marked as redelivered.

        Raises:
            ChannelRefused: the broker refuses; the old channel stays.
            BrokerUnavailable: the connection was lost; the usual recovery follows.
        """
        if (old := self.feed) is None:
            return
        if is_shard(self.queue):
            # Deliveries that arrive meanwhile must return before another consumer may start.
            self.replace("")
            return
        self._retiring = old
        await self._consume()
        await old.retire(_CANCEL_SECONDS)
        self._retiring = None

    async def resize(self, prefetch: int) -> None:
        """Allow up to `prefetch` unsettled deliveries of the queue from now on, besides those in hand.

        RabbitMQ fixes the prefetch of a consumer when it starts, so this starts another one.

        Raises:
            BrokerUnavailable: the connection was lost, or the broker refused; the old number may apply.
        """
        self._subscription = replace(self._subscription, prefetch=prefetch)
        try:
            await self.renew()
        except ChannelRefused as error:
            raise BrokerUnavailable(f"consuming queue {self.queue!r} again failed: {error}") from error

    def replace(self, why: str) -> None:
        """Consume on a new channel; unsettled deliveries of the old one return. A reason of "" is not logged."""
        if not self._lost.done():
            self._lost.set_result(why)

    async def _keep(self) -> None:
        backoff = reconnect_backoff()
        if self._news is not None:
            await self._appearance(self._news)
        while True:
            began = self._loop.time()
            await self._loss()
            if self._loop.time() - began > _GOOD_SECONDS or not self._connection.is_open:
                backoff.reset()
            while not self.consuming:
                # A lost connection paces its own attempts; a pause here would be added to them.
                if self._connection.is_open:
                    await asyncio.sleep(backoff.next())
                await self._mend()

    async def _appearance(self, news: asyncio.Event) -> None:
        """Return once the queue exists and is consumed."""
        while self._feed is None:
            await news.wait()
            news.clear()
            looks, self._looks = self._looks, 1
            for look in range(looks):
                await asyncio.sleep(_LOOK_SECONDS * look)
                if await self._is_consumed_now():
                    break
        self._news = None
        _log.info("queue %r now exists and is consumed", self.queue)

    async def _is_consumed_now(self) -> bool:
        """Consume the queue if it exists; return whether it did."""
        backoff = reconnect_backoff()
        while True:
            try:
                await self._connection.wait_open(None)
                await self._begin()
            except QueueMissing:
                return False
            except TaskMQError as error:
                self._complain(str(error))
                await asyncio.sleep(backoff.next())
            else:
                self._complaint = ""
                return True

    async def _mend(self) -> None:
        try:
            await self._connection.wait_open(None)
            await self._begin()
        except TaskMQError as error:
            self._complain(str(error))
        except Exception as error:  # noqa: BLE001 - a consumer that gives up in silence is worse than any error
            self._complain(repr(error))
            _log.debug("queue %r: consuming failed", self.queue, exc_info=True)
        else:
            if self._complaint:
                _log.info("queue %r is consumed again", self.queue)
            self._complaint = ""

    def _complain(self, complaint: str) -> None:
        # Once for each reason, not for each attempt; the connection logs its own losses.
        if complaint != self._complaint and self._connection.is_open:
            self._complaint = complaint
            _log.warning("queue %r cannot be consumed, will retry: %s", self.queue, complaint)

    async def _begin(self) -> None:
        if self._trying != self._connection.generation:
            self._trying, self._since = self._connection.generation, self._loop.time()
        try:
            await self._consume()
        except ChannelRefused as error:
            refused = refusal(error, self.queue)
            if not isinstance(refused, QueueMissing) or not self._was_there:
                raise refused from error
            await self._declarations.restore(self.queue)
            try:
                await self._consume()
            except ChannelRefused as again:
                raise refusal(again, self.queue) from again

    @property
    def _was_there(self) -> bool:
        """Whether this process declared or consumed the queue."""
        if is_on_demand(self.queue):
            return self._declarations.is_known(self.queue)
        return self._declarations.is_declared(self.queue)

    async def _consume(self) -> None:
        before, attempts = self._feed, list[asyncio.Task[None]]()
        try:
            while not any(attempt.done() for attempt in attempts):
                attempts.append(self._loop.create_task(self._attempt(before)))
                within = patience(self._loop.time() - self._since)
                await asyncio.wait(attempts, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if self._feed is before:
                next(attempt for attempt in attempts if attempt.done()).result()
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    async def _attempt(self, before: Feed | None) -> None:
        channel = await self._connection.channel()
        arguments = timeouts.consume_arguments(self._subscription.longest, self._connection.server_version)
        if not arguments or not self._takes_timeout:
            await self._start_feed(channel, {}, before)
            return
        try:
            await self._start_feed(channel, arguments, before)
        except ChannelRefused as error:
            # Classic queues refuse the argument, and have no timeout.
            if error.code != PRECONDITION_FAILED:
                raise
            await self._start_feed(await self._connection.channel(), {}, before)
            self._takes_timeout = False

    async def _start_feed(self, channel: OpenChannel, arguments: Mapping[str, int], before: Feed | None) -> None:
        feed = Feed(
            channel,
            self.queue,
            tag=consumer_tag(self.queue, next(self._numbers)),
            deliver=self._deliver,
            counts=self._counts,
            loop=self._loop,
            returned=self._letters.on_returned,
        )
        lost: asyncio.Future[str] = self._loop.create_future()

        def on_cancel(_frame: "MethodFrame") -> None:
            if not lost.done():
                lost.set_result(explain_cancel(self._connection.server_version, has_unsettled=bool(feed.unsettled)))

        channel.raw.add_on_cancel_callback(on_cancel)
        try:
            await feed.start(self._subscription.prefetch, arguments)
        except BaseException:
            feed.abandon()
            raise
        if self._feed is before:
            self._feed, self._lost, self._trying = feed, lost, None
            if is_on_demand(self.queue):
                self._declarations.note_found(self.queue)
        else:
            feed.abandon()

    async def _loss(self) -> None:
        feed = self._feed
        assert feed is not None
        ends: set[asyncio.Future[Any]] = {self._lost, feed.channel.ended}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        version = self._connection.server_version
        why = self._lost.result() if self._lost.done() else explain_end(feed.channel.ended.result(), version)
        if why:
            self._complaint = why
            _log.warning("queue %r: %s; consuming it again", self.queue, why)
        # After a cancel by the broker its messages are redelivered: late settlements would be refused.
        feed.channel.close()
