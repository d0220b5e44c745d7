"""A look at the front of a queue: take, show, put back in the old order.

A quorum queue keeps what was given back in a line of its own, before all else; what is given back once more joins
that line at its end. Giving back a part of the line would turn it round, so what is left of it is taken as well,
only to be given back after that part. This holds for looks of up to `_LINE` messages.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from taskmq.broker import Delivery
from taskmq.errors import BrokerUnavailable
from taskmq_rabbitmq.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connection import Connection
from taskmq_rabbitmq.declarations import queue_depth, refusal
from taskmq_rabbitmq.delivery import Feed, RabbitMQDelivery, Tally

__all__ = ["hold"]

_MOST: Final = 65535
_LINE: Final = 250
_QUIET: Final = 0.05
_PATIENCE: Final = 5.0
# RabbitMQ 3.10 keeps the order of what is given back in one command up to here; beyond, it is shuffled.
_IN_ORDER: Final = 32


@asynccontextmanager
async def hold(
    connection: Connection, queue: str, *, limit: int, tag: str, tally: Tally, endings: set[asyncio.Task[None]]
) -> AsyncGenerator[list[Delivery]]:
    """See `Broker.hold`; what gives the messages back is in `endings` meanwhile, and outlives a cancelled caller."""
    channel = await connection.channel()
    front = _Handful(connection, channel, queue, tag=tag, tally=tally)
    rest = _Handful(connection, channel, queue, tag=f"{tag}.rest", tally=tally)
    try:
        try:
            await front.take(min(limit, _MOST))
        except ChannelRefused as error:
            raise refusal(error, queue) from error
        yield [*front.deliveries]
    finally:
        ending = asyncio.create_task(_end(front, rest, channel), name=f"taskmq gives back {queue}")
        endings.add(ending)
        ending.add_done_callback(endings.discard)
        await asyncio.shield(ending)


async def _end(front: "_Handful", rest: "_Handful", channel: OpenChannel) -> None:
    # Where the channel is gone, the broker has taken everything back.
    with contextlib.suppress(BrokerUnavailable, ChannelRefused):
        await front.stop()
        if front.is_part_of_line and (more := _LINE - len(front.deliveries)) > 0:
            await rest.take(more)
        front.give_back()
        rest.give_back()
    channel.close()
    await asyncio.wait({channel.ended}, timeout=_PATIENCE)


class _Handful:
    """What one consumer has taken."""

    def __init__(self, connection: Connection, channel: OpenChannel, queue: str, *, tag: str, tally: Tally) -> None:
        self.deliveries: list[RabbitMQDelivery] = []
        self._connection = connection
        self._raw = channel.raw
        self._arrived = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._feed = Feed(channel, queue, tag=tag, deliver=self._receive, tally=tally, loop=loop)

    @property
    def is_part_of_line(self) -> bool:
        """Whether it has to go back, and to a line that may be longer."""
        return bool(self._unsettled()) and self.deliveries[-1].redelivered

    async def take(self, count: int) -> None:
        """Return with `count` deliveries, or fewer once nothing is ready any more."""
        # Where others are quicker at taking what is ready, what has come by then is it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._feed.start(count)
                while len(self.deliveries) < count:
                    if await self._quiet() and await self._empty():
                        break
        await self.stop()

    async def stop(self) -> None:
        """Take no more. What comes before the broker's answer belongs to the others: it keeps its place."""
        await self._feed.stop(_PATIENCE)

    def give_back(self) -> None:
        """Return what is not settled, in the old order."""
        tags = self._unsettled()
        for tag in (*tags[_IN_ORDER - 1 : -1 : _IN_ORDER], *tags[-1:]):
            if self._raw.is_open:
                self._raw.basic_nack(tag, multiple=True)

    def _unsettled(self) -> list[int]:
        return [delivery.tag for delivery in self.deliveries if not delivery.settled]

    def _receive(self, delivery: RabbitMQDelivery) -> None:
        self.deliveries.append(delivery)
        self._arrived.set()

    async def _quiet(self) -> bool:
        self._arrived.clear()
        try:
            async with asyncio.timeout(_QUIET):
                await self._arrived.wait()
        except TimeoutError:
            return True
        return False

    async def _empty(self) -> bool:
        # Asked only after a pause: a quorum queue's count comes from its state, which lags behind what was
        # just given back to it.
        ready, _ = await queue_depth(self._connection, self._feed.queue)
        return not ready
