"""A look at the front of a queue: take, show, put back in the old order."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from taskmq.broker import Delivery
from taskmq_rabbitmq.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connection import Connection
from taskmq_rabbitmq.declarations import queue_depth, refusal
from taskmq_rabbitmq.delivery import Feed, RabbitMQDelivery, Tally

__all__ = ["hold"]

_QUIET: Final = 0.05
_MOST: Final = 65535
# RabbitMQ 3.10 keeps the order of what is returned in one command up to here; beyond, it is shuffled.
_IN_ORDER: Final = 32
_PATIENCE: Final = 5.0
_CLOSE_SECONDS: Final = 5.0


@asynccontextmanager
async def hold(
    connection: Connection, queue: str, *, limit: int, tag: str, tally: Tally
) -> AsyncGenerator[list[Delivery]]:
    """See `Broker.hold`."""
    held = _Held(connection, await connection.channel(), queue, tag=tag, tally=tally)
    try:
        await held.collect(limit)
        yield held.deliveries
    finally:
        await held.give_back()


class _Held:
    def __init__(self, connection: Connection, channel: OpenChannel, queue: str, *, tag: str, tally: Tally) -> None:
        loop = asyncio.get_running_loop()
        self._held: list[RabbitMQDelivery] = []
        self._arrived = asyncio.Event()
        self._connection = connection
        self._channel = channel
        self._feed = Feed(channel, queue, tag=tag, deliver=self._take, tally=tally, loop=loop)

    @property
    def deliveries(self) -> list[Delivery]:
        return [*self._held]

    def _take(self, delivery: RabbitMQDelivery) -> None:
        self._held.append(delivery)
        self._arrived.set()

    async def collect(self, limit: int) -> None:
        """Return with `limit` deliveries, or once nothing is ready any more."""
        limit = min(limit, _MOST)
        try:
            # When others are quicker at taking what is ready, what we got by then is it.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._fill(limit)
            # What comes before cancel-ok belongs to the list: given back at once, it would be in front of the
            # others.
            await self._feed.stop(_CLOSE_SECONDS)
        except ChannelRefused as error:
            raise refusal(error, self._feed.queue) from error

    async def _fill(self, limit: int) -> None:
        await self._feed.start(limit)
        while len(self._held) < limit:
            if await self._quiet() and await self._empty():
                return

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

    async def give_back(self) -> None:
        """Return what is not settled, in the old order."""
        raw = self._channel.raw
        tags = [delivery.tag for delivery in self._held if not delivery.settled]
        if raw.is_open and tags:
            for tag in (*tags[_IN_ORDER - 1 : -1 : _IN_ORDER], tags[-1]):
                raw.basic_nack(tag, multiple=True)
        self._channel.close()
        await asyncio.wait({self._channel.ended}, timeout=_CLOSE_SECONDS)
