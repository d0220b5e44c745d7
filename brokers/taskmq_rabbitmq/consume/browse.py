"""Browsing the front of a queue: take, show, and return messages in their old order.

A quorum queue keeps returned messages in a line of their own, before all others; a message returned once more joins
that line at its end. Returning only a part of the line would reorder it, so the rest of it is taken as well, and
returned after that part. So a look at the front costs as much as the deepest look before it.

Each piece has a consumer of its own, which is cancelled once the piece is complete. Only one is active at a time, so
the channel numbers all pieces in order, and only the numbers of taken messages are kept.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final

from taskmq.contracts.broker import Delivery
from taskmq.errors import BrokerUnavailable
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.consume.delivery import DeliveryCounts, Feed, RabbitMQDelivery
from taskmq_rabbitmq.declare.requests import queue_depth, refusal

_MOST: Final = 65535
_REST: Final = 250
_MOST_REST: Final = 4_000
_QUIET: Final = 0.05
_PATIENCE: Final = 5.0
# RabbitMQ 3.10 keeps the order of messages returned in one command up to this number, and shuffles more.
_IN_ORDER: Final = 32
# With 32 commands pending it merges those that follow into one.
_AT_ONCE: Final = 24
_APPLYING: Final = 0.002


@asynccontextmanager
async def browse(
    connection: Connection, queue: str, *, tag: str, counts: DeliveryCounts, endings: set[asyncio.Task[None]]
) -> "AsyncGenerator[RabbitMQBrowser]":
    """See `Broker.browse`. A task in `endings` returns the messages; cancelling the caller does not end it."""
    channel = await connection.channel()
    front = RabbitMQBrowser(connection, channel, queue, tag=tag, counts=counts)
    try:
        yield front
    finally:
        ending = asyncio.create_task(front.end(), name=f"taskmq gives back {queue}")
        endings.add(ending)
        ending.add_done_callback(endings.discard)
        await asyncio.shield(ending)


class RabbitMQBrowser:
    """A `taskmq.contracts.broker.Browser`."""

    def __init__(
        self, connection: Connection, channel: OpenChannel, queue: str, *, tag: str, counts: DeliveryCounts
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._queue = queue
        self._tag = tag
        self._counts = counts
        self._pieces: list[_Piece] = []
        self._begun = 0
        self._settled_before = 0

    async def take(self, count: int) -> list[Delivery]:
        """See `taskmq.contracts.broker.Browser`."""
        taken: list[Delivery] = []
        while (wanted := min(count - len(taken), _MOST)) > 0:
            try:
                came = await self._begin().take(wanted)
            except ChannelRefused as error:
                raise refusal(error, self._queue) from error
            taken += came
            if len(came) < wanted:
                break
        return taken

    async def end(self) -> None:
        """Return unsettled messages; called once."""
        # If the channel is gone, the broker has taken everything back.
        with contextlib.suppress(BrokerUnavailable, ChannelRefused):
            if self._pieces:
                await self._pieces[-1].stop()
            if self._count_settled() != self._settled_before:
                # Returns while many settlements are pending are deferred, and shuffled with them; and deferred ones
                # are lost when the channel closes. The answer to a new consumer arrives after all of them.
                await self._begin().take(1)
            if any(piece.has_unsettled for piece in self._pieces):
                await self._take_rest_of_line()
                await self._give_back()
        self._channel.close()
        await asyncio.wait({self._channel.ended}, timeout=_PATIENCE)

    async def _take_rest_of_line(self) -> None:
        size = _REST
        while self._pieces[-1].ends_in_line:
            if len(await self._begin().take(size)) < size:
                return
            size = min(size * 2, _MOST_REST)

    async def _give_back(self) -> None:
        ready, _ = await queue_depth(self._connection, self._queue)
        commands = 0
        for piece in self._pieces:
            for count in piece.give_back():
                ready += count
                commands += 1
                if commands % _AT_ONCE == 0:
                    await self._until_ready(ready)
        # So that the next reader finds all of them.
        await self._until_ready(ready)

    async def _until_ready(self, count: int) -> None:
        """Return once returned messages are in the queue again, or others have taken them meanwhile."""
        loop = asyncio.get_running_loop()
        last, most = loop.time(), -1
        while (ready := (await queue_depth(self._connection, self._queue))[0]) < count:
            if ready > most:
                last, most = loop.time(), ready
            elif loop.time() - last > _PATIENCE:
                return
            await asyncio.sleep(_APPLYING)

    def _count_settled(self) -> int:
        return sum(piece.settled for piece in self._pieces)

    def _begin(self) -> "_Piece":
        # Settled pieces are dropped, except the last one, which determines the line.
        self._pieces = [piece for piece in self._pieces if piece.has_unsettled]
        self._settled_before = self._count_settled()
        self._begun += 1
        tag = f"{self._tag}.{self._begun}"
        piece = _Piece(self._connection, self._channel, self._queue, tag=tag, counts=self._counts)
        self._pieces.append(piece)
        return piece


class _Piece(Feed):
    """Messages that one consumer has taken.

    Attributes:
        ends_in_line: whether its last message had been returned before, so those behind it may have been, too.
    """

    __slots__ = ("_arrived", "_connection", "_first", "_fresh", "_last", "_settled_tags", "ends_in_line")

    def __init__(
        self, connection: Connection, channel: OpenChannel, queue: str, *, tag: str, counts: DeliveryCounts
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(channel, queue, tag=tag, deliver=self._arrive, counts=counts, loop=loop)
        self.ends_in_line = False
        self._connection = connection
        self._arrived = asyncio.Event()
        self._fresh: list[RabbitMQDelivery] = []
        self._first = 0
        self._last = -1
        self._settled_tags: set[int] = set()

    @property
    def has_unsettled(self) -> bool:
        """Whether some messages must be returned."""
        return len(self._settled_tags) <= self._last - self._first

    @property
    def settled(self) -> int:
        """Number of settled messages."""
        return len(self._settled_tags)

    async def take(self, count: int) -> list[RabbitMQDelivery]:
        """Return `count` deliveries, or fewer once nothing is ready any more."""
        loop = asyncio.get_running_loop()
        await self.start(count)
        last = loop.time()
        while len(self._fresh) < count:
            if not await self._quiet():
                last = loop.time()
            # If others take ready messages faster, the piece ends with what has arrived.
            elif await self._empty() or loop.time() - last > _PATIENCE:
                break
        await self.stop()
        taken, self._fresh = self._fresh, []
        return taken

    async def stop(self, timeout: float = _PATIENCE) -> None:
        """Stop taking. Messages that arrive before the broker's answer join the others and keep their position."""
        await super().stop(timeout)

    def ack(self, tag: int) -> None:
        self._settled_tags.add(tag)
        super().ack(tag)

    async def ack_confirmed(self, tag: int) -> bool:
        self._settled_tags.add(tag)
        return await super().ack_confirmed(tag)

    def requeue(self, tag: int) -> None:
        """Leave the message to be returned with the others: alone it would overtake those before it."""

    def give_back(self) -> Iterator[int]:
        """Return unsettled messages in the old order, one command at each step; yield the number that it returns."""
        tags = [tag for tag in range(self._first, self._last + 1) if tag not in self._settled_tags]
        raw = self.channel.raw
        for at in range(0, len(tags), _IN_ORDER):
            some = tags[at : at + _IN_ORDER]
            if raw.is_open:
                raw.basic_nack(some[-1], multiple=True)
                yield len(some)

    def _arrive(self, delivery: RabbitMQDelivery) -> None:
        if self._last < 0:
            self._first = delivery.tag
        self._last = delivery.tag
        self.ends_in_line = delivery.redelivered
        self._fresh.append(delivery)
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
        # Asked only after a pause: a quorum queue's count comes from its state, which lags behind recent returns.
        ready, _ = await queue_depth(self._connection, self.queue)
        return not ready
