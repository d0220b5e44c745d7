"""A look at the front of a queue: take, show, put back in the old order."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from taskmq.broker import Delivery
from taskmq_rabbitmq.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connection import Connection
from taskmq_rabbitmq.declarations import queue_depth, refusal
from taskmq_rabbitmq.delivery import Feed, RabbitMQDelivery, Tally

__all__ = ["hold"]

_LOOK_AGAIN: Final = 0.2
_PATIENCE: Final = 5.0
_CLOSE_SECONDS: Final = 5.0


@asynccontextmanager
async def hold(
    connection: Connection, queue: str, *, limit: int, tag: str, tally: Tally
) -> AsyncGenerator[list[Delivery]]:
    """See `Broker.hold`."""
    ready, _ = await queue_depth(connection, queue)
    if not (wanted := min(ready, limit)):
        yield []
        return
    channel = await connection.channel()
    held = _Held(connection, channel, queue, tag=tag, tally=tally)
    try:
        await held.collect(wanted)
        yield held.deliveries
    finally:
        await held.give_back()


class _Held:
    def __init__(self, connection: Connection, channel: OpenChannel, queue: str, *, tag: str, tally: Tally) -> None:
        loop = asyncio.get_running_loop()
        self.deliveries: list[Delivery] = []
        self._arrived = asyncio.Event()
        self._connection = connection
        self._channel = channel
        self._feed = Feed(channel, queue, tag=tag, deliver=self._take, tally=tally, loop=loop)

    def _take(self, delivery: RabbitMQDelivery) -> None:
        self.deliveries.append(delivery)
        self._arrived.set()

    async def collect(self, wanted: int) -> None:
        """Fewer than `wanted` come when other consumers are at the queue too."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE
        try:
            await self._feed.start(wanted)
            while len(self.deliveries) < wanted and loop.time() < deadline:
                self._arrived.clear()
                try:
                    async with asyncio.timeout(_LOOK_AGAIN):
                        await self._arrived.wait()
                except TimeoutError:
                    if not (await queue_depth(self._connection, self._feed.queue))[0]:
                        break
            # What still comes before cancel-ok belongs to the list: giving it back at once would put it
            # before the others.
            await self._feed.stop(_CLOSE_SECONDS)
        except ChannelRefused as error:
            raise refusal(error, self._feed.queue) from error

    async def give_back(self) -> None:
        """Return what is not settled, all in one command, so that the order stays."""
        raw = self._channel.raw
        if raw.is_open and self._feed.unsettled:
            raw.basic_nack(0, multiple=True)
        self._channel.close()
        await asyncio.wait({self._channel.ended}, timeout=_CLOSE_SECONDS)
