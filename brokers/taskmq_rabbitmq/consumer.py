"""Subscriptions that mend themselves.

    starting -> consuming -> (lost) -> starting ...        consuming -> stopped

Each physical queue has its own channel and its own task, so that what befalls one (deleted, its leader gone, a
consumer timeout) does not touch the others. A lost subscription comes back on a new channel with a new consumer
tag: RabbitMQ 4.3 closes the connection over a tag that it has cancelled itself.
"""

import asyncio
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskmq.broker import Delivery, Subscription
from taskmq.errors import BrokerUnavailable, QueueMissing, TaskMQError
from taskmq_rabbitmq.backoff import Backoff
from taskmq_rabbitmq.channels import ChannelRefused
from taskmq_rabbitmq.connection import OPEN_SECONDS, Connection
from taskmq_rabbitmq.declarations import Declarations, refusal
from taskmq_rabbitmq.delivery import Feed, Tally

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp import MethodFrame

__all__ = ["RabbitMQConsumer", "consumer_tag"]

_CANCEL_SECONDS: Final = 5.0
_TAG_BYTES: Final = 255


class RabbitMQConsumer:
    """A `taskmq.broker.Consumer`."""

    def __init__(self, subscriptions: "Sequence[_QueueConsumer]", tally: Tally) -> None:
        self._subscriptions = subscriptions
        self._tally = tally
        self._stopping: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        subscriptions: Sequence[Subscription],
        deliver: Callable[[Delivery], None],
        *,
        connection: Connection,
        declarations: Declarations,
        tally: Tally,
        numbers: Iterator[int],
    ) -> "RabbitMQConsumer":
        """A consumer all of whose subscriptions are live.

        Raises:
            QueueMissing: a queue does not exist and was not declared through this broker object.
            BrokerUnavailable: the broker could not be reached.
        """
        loop = asyncio.get_running_loop()
        consumer = cls(
            [
                _QueueConsumer(
                    subscription,
                    deliver,
                    connection=connection,
                    declarations=declarations,
                    tally=tally,
                    numbers=numbers,
                    loop=loop,
                )
                for subscription in subscriptions
            ],
            tally,
        )
        try:
            # One after the other, so that when one fails nothing else is under way.
            for each in consumer._subscriptions:
                await each.start()
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    def __repr__(self) -> str:
        return f"<Consumer {' '.join(map(repr, self._subscriptions))}>"

    @property
    def healthy(self) -> bool:
        return all(each.consuming for each in self._subscriptions)

    @property
    def stopped(self) -> bool:
        """Whether it has stopped."""
        return self._stopping is not None and self._stopping.done()

    @property
    def stale_settles(self) -> int:
        """How many deliveries of this broker object were settled after their channel had ended."""
        return self._tally.stale_settles

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="taskmq consumer stops")
        # Whoever stops waiting, or calls again, changes nothing.
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        await asyncio.gather(*(each.stop() for each in self._subscriptions))


class _QueueConsumer:
    def __init__(
        self,
        subscription: Subscription,
        deliver: Callable[[Delivery], None],
        *,
        connection: Connection,
        declarations: Declarations,
        tally: Tally,
        numbers: Iterator[int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._queue = subscription.queue
        self._prefetch = subscription.prefetch
        self._deliver = deliver
        self._connection = connection
        self._declarations = declarations
        self._tally = tally
        self._numbers = numbers
        self._loop = loop
        self._feed: Feed | None = None
        self._lost: asyncio.Future[None] = loop.create_future()
        self._keeper: asyncio.Task[None] | None = None
        self._stopped = False

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "consuming" if self.consuming else "starting"
        return f"<{self._queue} {state}>"

    @property
    def consuming(self) -> bool:
        return (
            not self._stopped
            and self._feed is not None
            and not self._lost.done()
            and not self._feed.channel.ended.done()
        )

    async def start(self) -> None:
        """Return once it consumes; from then on it mends itself."""
        give_up = self._loop.time() + OPEN_SECONDS
        while self._feed is None:
            await self._connection.opened(give_up - self._loop.time())
            try:
                await self._begin()
            except ChannelRefused as error:
                raise refusal(error, self._queue) from error
            except BrokerUnavailable:
                # The connection may be lost on the way; it comes back.
                if self._loop.time() >= give_up:
                    raise
        self._keeper = self._loop.create_task(self._keep(), name=f"taskmq consumer of {self._queue}")

    async def stop(self) -> None:
        """See `Consumer.stop`; called once."""
        self._stopped = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._feed is not None:
            await self._feed.withdraw(_CANCEL_SECONDS)

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            began = self._loop.time()
            await self._loss()
            if self._loop.time() - began > 10:
                backoff.reset()
            while not self.consuming:
                await asyncio.sleep(backoff.next())
                await self._mend()

    async def _mend(self) -> None:
        try:
            await self._connection.opened(None)
            await self._begin()
        except (BrokerUnavailable, ChannelRefused):
            return
        except TaskMQError as error:
            self._loop.call_exception_handler(
                {"message": f"queue {self._queue!r} cannot be consumed again for now", "exception": error}
            )

    async def _begin(self) -> None:
        try:
            await self._consume()
        except ChannelRefused as error:
            if not isinstance(refusal(error, self._queue), QueueMissing):
                raise
            if not self._declarations.declared(self._queue):
                raise
            await self._declarations.restore(self._queue)
            await self._consume()

    async def _consume(self) -> None:
        channel = await self._connection.channel()
        feed = Feed(
            channel,
            self._queue,
            tag=consumer_tag(self._queue, next(self._numbers)),
            deliver=self._deliver,
            tally=self._tally,
            loop=self._loop,
        )
        lost: asyncio.Future[None] = self._loop.create_future()

        def on_cancel(_frame: "MethodFrame") -> None:
            if not lost.done():
                lost.set_result(None)

        channel.raw.add_on_cancel_callback(on_cancel)
        try:
            await feed.start(self._prefetch)
        except BaseException:
            feed.abandon()
            raise
        self._feed, self._lost = feed, lost

    async def _loss(self) -> None:
        feed = self._feed
        assert feed is not None
        ends: set[asyncio.Future[Any]] = {self._lost, feed.channel.ended}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # After a cancel by the broker its messages are out again: late settling here would be refused.
        feed.channel.close()


def consumer_tag(queue: str, number: int) -> str:
    """Who consumes, for people; not used before by this process."""
    host = platform.node()[:60]
    before, after = f"tmq.{host}.{os.getpid()}.", f".{number}"
    room = _TAG_BYTES - len(before.encode()) - len(after)
    return f"{before}{queue.encode()[:room].decode(errors='ignore')}{after}"
