"""Moving messages from one queue to another: a copy is confirmed before its original is acknowledged.

So a message is in at least one of them at every moment, and in both after a crash, with the same id. The order is
kept. Copies equal the received bytes, except for what `message_copy` drops.
"""

import asyncio
import math
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from taskmq.errors import BrokerBlocked, PublishRejected, QueueMissing, UnsupportedFeature
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.amqp.frames import publish_frames
from taskmq_rabbitmq.amqp.properties import Content, properties_bytes
from taskmq_rabbitmq.amqp.publish_template import APP_ID
from taskmq_rabbitmq.amqp.received_properties import Properties
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS
from taskmq_rabbitmq.consume.delivery import consumer_tag
from taskmq_rabbitmq.declare.requests import queue_depth, refusal
from taskmq_rabbitmq.migrate.message_copy import copied_properties

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import BasicProperties, Method, PikaChannel

FILLER: Final = "taskmq-migration-plug"
"""Prefix of the message ids of fillers, which only fill a queue and are never moved."""

_PLAIN: Final = (
    "messages are moved as bytes, which this pika does not hand out: migrate with the pika of taskmq's own"
)
_NO_ANSWER: Final = (
    "the broker confirmed nothing for a minute: is there a memory or disk alarm, or a queue without a leader?"
)
_WINDOW: Final = 200
_FILLERS: Final = 5
_QUIET: Final = 0.1
_PATIENCE: Final = 60.0


class QueueMover:
    """Moves messages over one connection, one pair of queues at a time.

    Args:
        connection: with the fast wire; closed by its opener.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = 0

    async def move(self, source: str, target: str, *, limit: int | None = None) -> int:
        """Move ready messages from `source` to `target`, at most `limit`; return their number.

        Raises:
            BrokerBlocked: nothing was confirmed for a minute.
            BrokerUnavailable: the connection was lost.
            PublishRejected: `target` refuses them; refused messages stay in `source`.
            QueueMissing: one of the queues does not exist.
        """
        if limit == 0:
            return 0
        async with self._transfer(source, target) as (transfer, tag):
            return await _move(transfer, tag, limit)

    async def empty_behind_fillers(self, source: str, target: str) -> int:
        """Move ready messages from `source`, a closed quorum queue, and leave fillers; return the number of fillers.

        A closed queue accepts messages once nothing is ready in it. So one message is taken at a time, and fillers
        are published once nothing else is left. Once there are as many messages as fillers, there is nothing else.

        Raises:
            As `move`.
        """
        async with self._transfer(source, target) as (transfer, tag):
            sending = await self._connection.channel()
            try:
                fillers = await _Outbox.on(sending)
                return await _empty(transfer, fillers, source, _filler_properties(transfer.filler), tag)
            finally:
                await _close(sending)

    async def takes(self, queue: str) -> bool:
        """Return whether `queue` accepts a message; a filler is in it then.

        Raises:
            BrokerBlocked: the broker did not answer for a minute.
            BrokerUnavailable: the connection was lost.
            QueueMissing: it does not exist.
        """
        sending = await self._connection.channel()
        try:
            return bool(await _put_fillers(await _Outbox.on(sending), queue, _filler_properties(FILLER), 1))
        except ChannelRefused as error:
            raise refusal(error, queue) from error
        finally:
            await _close(sending)

    @asynccontextmanager
    async def _transfer(self, source: str, target: str) -> "AsyncGenerator[tuple[_Transfer, str]]":
        self._numbers += 1
        tag = consumer_tag(source, self._numbers)
        taking = await self._connection.channel()
        try:
            sending = await self._connection.channel()
            try:
                outbox = await _Outbox.on(sending)
                yield _Transfer(self._connection, taking, outbox, source=source, target=target), tag
            finally:
                await _close(sending)
        except ChannelRefused as error:
            raise refusal(error, source) from error
        finally:
            # Unacknowledged messages return with their channel, and are ready again when it has ended.
            await _close(taking)


class _Outbox:
    """A channel in confirm mode.

    Attributes:
        unanswered: numbers of messages without an answer.
        confirmed: confirmed messages that were not processed yet.
        rejected: number of messages that the broker refused.
        returned: number of unroutable messages; they are confirmed afterwards.
        changed: set when something has happened.
    """

    def __init__(self, channel: OpenChannel) -> None:
        self.unanswered: set[int] = set()
        self.confirmed: set[int] = set()
        self.rejected = 0
        self.returned = 0
        self.changed = asyncio.Event()
        self._channel = channel
        self._written = 0

    @classmethod
    async def on(cls, channel: OpenChannel) -> "_Outbox":
        """Open one on a new channel."""
        outbox = cls(channel)
        channel.raw.add_on_return_callback(outbox._on_return)
        await channel.request(lambda done: channel.raw.confirm(outbox._on_confirm, done))
        channel.ended.add_done_callback(lambda _: outbox.changed.set())
        return outbox

    def publish(self, queue: str, properties: bytes, body: bytes) -> int:
        """Publish to `queue`; return the message's number."""
        raw = self._channel.raw
        if (lane := raw.lane) is None:
            raise UnsupportedFeature(_PLAIN)
        frames = publish_frames(
            raw.channel_number, b"", queue.encode(), properties, body, frame_max=lane.params.frame_max
        )
        self._channel.send(lambda: lane.send(frames))
        self._written += 1
        self.unanswered.add(self._written)
        return self._written

    async def has_changed(self, timeout: float) -> bool:
        """Return whether something has happened within `timeout` seconds.

        Raises:
            BrokerUnavailable: the connection was lost.
            ChannelRefused: the broker has closed the channel.
        """
        try:
            async with asyncio.timeout(timeout):
                await self.changed.wait()
        except TimeoutError:
            # On a busy machine both may be true at the same time.
            if not self.changed.is_set():
                return False
        if self._channel.ended.done():
            raise self._channel.ended.result()
        self.changed.clear()
        return True

    def _on_confirm(self, tag: int, is_multiple: bool, is_nack: bool) -> None:  # noqa: FBT001 - a positional callback of pika
        answered = {number for number in self.unanswered if number <= tag} if is_multiple else {tag}
        self.unanswered -= answered
        if is_nack:
            self.rejected += len(answered)
        else:
            self.confirmed |= answered
        self.changed.set()

    def _on_return(
        self, _raw: "PikaChannel", _method: "Method", _properties: "BasicProperties", _body: bytes
    ) -> None:
        self.returned += 1


class _Transfer:
    """A consumer whose messages are copied to another queue as they come.

    Attributes:
        outbox: publishes the copies.
        filler: message id of the fillers published meanwhile.
        held: unacknowledged messages in order: the tag, and the number of the copy; None for a filler.
        fillers: number of these fillers that have arrived.
    """

    def __init__(
        self, connection: Connection, taking: OpenChannel, outbox: _Outbox, *, source: str, target: str
    ) -> None:
        self.outbox = outbox
        self.filler: Final = f"{FILLER}-{secrets.token_hex(8)}"
        self.held: deque[tuple[int, int | None]] = deque()
        self.fillers = 0
        self._connection = connection
        self._taking = taking
        self._source = source
        self._target = target
        self._failure: Exception | None = None

    async def start(self, tag: str, prefetch: int) -> None:
        raw, changed = self._taking.raw, self.outbox.changed
        await self._taking.request(lambda done: raw.basic_qos(prefetch_count=prefetch, callback=done))
        raw.receive(self._receive)
        self._taking.ended.add_done_callback(lambda _: changed.set())
        await self._taking.request(
            lambda done: raw.basic_consume(self._source, _ignore, consumer_tag=tag, arguments={}, callback=done)
        )

    async def stop(self, tag: str) -> None:
        """Stop taking."""
        await self._taking.request(lambda done: self._taking.raw.basic_cancel(tag, done))

    async def ready(self) -> int:
        """Return the number of ready messages in the source."""
        return (await queue_depth(self._connection, self._source))[0]

    def next_copied(self) -> int | None:
        """Return the tag of the first held message if its copy is confirmed, and stop holding it.

        Raises:
            Exception: the reason why the transfer cannot continue.
        """
        self._check()
        if not self.held:
            return None
        tag, number = self.held[0]
        if number is not None:
            if number not in self.outbox.confirmed:
                return None
            self.outbox.confirmed.remove(number)
        self.held.popleft()
        return tag

    def ack(self, tag: int) -> None:
        self._taking.raw.ack(tag)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._taking.ended.done():
            raise self._taking.ended.result()
        # An unroutable message is returned first and confirmed then.
        if self.outbox.returned:
            raise QueueMissing(self._target)
        if self.outbox.rejected:
            raise PublishRejected(f"queue {self._target!r} refused a message of {self._source!r}, which stays there")

    def _receive(self, tag: int, _redelivered: bool, properties: Properties, body: bytes) -> None:  # noqa: FBT001 - a positional callback of pika
        if self._failure is not None:
            return
        self.outbox.changed.set()
        if (properties.message_id or "").startswith(FILLER):
            self.fillers += properties.message_id == self.filler
            self.held.append((tag, None))
            return
        try:
            if not isinstance(properties, Content):
                raise UnsupportedFeature(_PLAIN)
            number = self.outbox.publish(self._target, copied_properties(*properties.parts), body)
        except Exception as error:  # noqa: BLE001 - raised where the move is awaited
            self._failure = error
            return
        self.held.append((tag, number))


async def _move(transfer: _Transfer, tag: str, limit: int | None) -> int:
    window = _WINDOW if limit is None else min(_WINDOW, limit)
    # Each ack brings one more delivery, so the last acks wait until nothing arrives any more.
    may_ack = math.inf if limit is None else limit - window
    kept: list[int] = []
    moved = 0
    await transfer.start(tag, window)
    while limit is None or moved < limit:
        if not await transfer.outbox.has_changed(_PATIENCE if transfer.outbox.unanswered else _QUIET):
            if transfer.outbox.unanswered:
                raise BrokerBlocked(_NO_ANSWER)
            if not await transfer.ready() and not transfer.outbox.changed.is_set():
                break
        while (done := transfer.next_copied()) is not None:
            moved += 1
            if moved <= may_ack:
                transfer.ack(done)
            else:
                kept.append(done)
    await transfer.stop(tag)
    for done in kept:
        transfer.ack(done)
    return moved


async def _empty(transfer: _Transfer, fillers: _Outbox, queue: str, properties: bytes, tag: str) -> int:
    put = 0
    await transfer.start(tag, 1)
    while True:
        while not (ready := await transfer.ready()) and not transfer.held:
            put += await _put_fillers(fillers, queue, properties)
        while (done := transfer.next_copied()) is None:
            if not await transfer.outbox.has_changed(_PATIENCE):
                raise BrokerBlocked(_NO_ANSWER)
        while not (ready := await transfer.ready()):
            put += await _put_fillers(fillers, queue, properties)
        if ready == put - transfer.fillers:
            break
        transfer.ack(done)
    await transfer.stop(tag)
    transfer.ack(done)
    return ready


async def _put_fillers(outbox: _Outbox, queue: str, properties: bytes, count: int = _FILLERS) -> int:
    """Publish a few fillers; return how many the queue accepted."""
    for _ in range(count):
        outbox.publish(queue, properties, b"it keeps the queue full during a migration; it can be deleted")
    while outbox.unanswered:
        if not await outbox.has_changed(_PATIENCE):
            raise BrokerBlocked(_NO_ANSWER)
    if outbox.returned:
        raise QueueMissing(queue)
    accepted = len(outbox.confirmed)
    outbox.confirmed.clear()
    return accepted


def _filler_properties(message_id: str) -> bytes:
    return properties_bytes(
        content_type="text/plain",
        content_encoding=None,
        headers={},
        correlation_id=FILLER,
        message_id=message_id,
        timestamp=None,
        kind=FILLER,
        app_id=APP_ID,
    )


async def _close(channel: OpenChannel) -> None:
    channel.close()
    await asyncio.wait({channel.ended}, timeout=OPEN_SECONDS)


def _ignore(*_: object) -> None:
    """Placeholder for pika's consumer callback: deliveries go through `AmqpChannel.receive`."""
