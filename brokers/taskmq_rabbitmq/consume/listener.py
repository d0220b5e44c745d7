"""Listener: an exclusive queue, bound to the exchange of announcements.

The queue ends with its connection, holds at most 10,000 messages (the oldest are dropped) and is consumed without
acknowledgements. After a lost connection another queue is declared under another name, because the broker may not
know yet that the old connection is gone. All versions accept such a queue: 4.3 warns about transient queues that are
not exclusive.
"""

import asyncio
import contextlib
import os
import platform
import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from taskmq.contracts.broker_abilities import ignore_connection
from taskmq.contracts.loggers import contained_logger
from taskmq.errors import AccessDenied, BrokerUnavailable, TaskMQError, TopologyMismatch
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.amqp.fast_connection import AmqpChannel
from taskmq_rabbitmq.amqp.received_properties import Properties
from taskmq_rabbitmq.connect.backoff import reconnect_backoff
from taskmq_rabbitmq.connect.connection import Connection
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS
from taskmq_rabbitmq.declare.requests import refusal
from taskmq_rabbitmq.model.access_refused import NOT_FOUND
from taskmq_rabbitmq.model.entities import EVENTS, LISTENER, NEW_QUEUE

if TYPE_CHECKING:
    from taskmq_rabbitmq.amqp.pika_types import Done

_log = contained_logger(__name__)
_REFUSED_SECONDS: Final = 30.0
_PAUSE: Final = 0.1
_ARGUMENTS: Final[Mapping[str, str | int]] = {
    "x-queue-type": "classic",
    "x-max-length": 10_000,
    "x-max-length-bytes": 64 * 2**20,
    "x-overflow": "drop-head",
}


class RabbitMQListener:
    """A `taskmq.contracts.broker.Listening`.

    Args:
        declares: whether the exchange may be declared.
        renew_seconds: interval at which the bindings are declared again. Deleting the exchange deletes them, and
            RabbitMQ does not notify listeners.
        new_queue: called with each queue on demand that is declared; its announcement is not passed on.
        connected: called with False when listening is interrupted, and with True when it resumes.
    """

    def __init__(
        self,
        patterns: Collection[str],
        receive: Callable[[str, bytes], None],
        *,
        connection: Connection,
        declares: bool,
        loop: asyncio.AbstractEventLoop,
        renew_seconds: float,
        new_queue: Callable[[str], None] | None = None,
        connected: Callable[[bool], None] = ignore_connection,
    ) -> None:
        self._new_queue = new_queue
        self._connected = connected
        self._renew_seconds = renew_seconds
        self._queue = ""
        self._patterns = list(dict.fromkeys(patterns if new_queue is None else (*patterns, NEW_QUEUE)))
        self._receive = receive
        self._connection = connection
        self._declares = declares
        self._loop = loop
        self._channel: OpenChannel | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._complaint = ""

    def __repr__(self) -> str:
        state = "stopped" if self._is_stopped else "listening" if self._is_listening else "starting"
        return f"<RabbitMQListener {' '.join(self._patterns)} {state}>"

    @property
    def hears_of_queues(self) -> bool:
        """Whether it listens now, and for new queues too."""
        return self._new_queue is not None and self._is_listening and not self._is_stopped

    @property
    def _is_listening(self) -> bool:
        return self._channel is not None and not self._channel.ended.done()

    async def start(self) -> None:
        """Return once it listens; from then on it recovers by itself.

        Raises:
            AccessDenied: the user may not listen.
            TopologyMismatch: the exchange is missing, or has another type.
            BrokerUnavailable: the broker could not be reached.
        """
        give_up = self._loop.time() + OPEN_SECONDS
        while self._channel is None:
            await self._connection.wait_open(give_up - self._loop.time())
            try:
                await self._begin()
            except AccessDenied:
                raise
            except BrokerUnavailable:
                # The connection may be lost meanwhile; it reopens.
                if self._loop.time() >= give_up:
                    raise
                await asyncio.sleep(_PAUSE)
        self._upkeep = self._loop.create_task(self._keep(self._channel), name="taskmq listener")

    async def stop(self) -> None:
        self._is_stopped = True
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait({self._upkeep})
        if self._channel is not None:
            # The queue is deleted with its only consumer.
            self._channel.close()

    async def _keep(self, channel: OpenChannel) -> None:
        backoff = reconnect_backoff()
        while True:
            while not await self._has_ended(channel):
                await self._renew(channel)
            self._connected(False)
            while not self._is_listening:
                if self._connection.is_open:
                    await asyncio.sleep(backoff.next())
                await self._mend()
            assert self._channel is not None
            channel = self._channel
            backoff.reset()
            self._connected(True)

    async def _has_ended(self, channel: OpenChannel) -> bool:
        """Return after a while, or once the channel has ended."""
        await asyncio.wait({channel.ended}, timeout=self._renew_seconds)
        return channel.ended.done()

    async def _renew(self, channel: OpenChannel) -> None:
        # A refusal ends the channel, which is then replaced like any other.
        with contextlib.suppress(BrokerUnavailable, ChannelRefused):
            await self._bind(channel, self._queue)

    async def _mend(self) -> None:
        try:
            await self._connection.wait_open(None)
            await self._begin()
        except (AccessDenied, TopologyMismatch) as error:
            self._complain(str(error))
            await asyncio.sleep(_REFUSED_SECONDS)
        except TaskMQError as error:
            self._complain(str(error))
        else:
            self._complaint = ""

    def _complain(self, complaint: str) -> None:
        # Once for each reason, not for each attempt; the connection logs its own losses.
        if complaint != self._complaint and self._connection.is_open:
            self._complaint = complaint
            _log.warning("cannot receive events and commands, will retry: %s", complaint)

    async def _begin(self) -> None:
        channel = await self._connection.channel()
        try:
            await self._listen(channel)
        except ChannelRefused as error:
            raise _explain(error) from error
        except BaseException:
            channel.close()
            raise
        self._channel = channel

    async def _listen(self, channel: OpenChannel) -> None:
        raw = channel.raw
        queue = f"{LISTENER}{platform.node()[:60]}.{os.getpid()}.{secrets.token_hex(6)}"
        await channel.request(
            lambda done: raw.queue_declare(
                queue, exclusive=True, auto_delete=True, arguments=_ARGUMENTS, callback=done
            )
        )
        await self._bind(channel, queue)
        self._queue = queue
        raw.receive_addressed(self._hear)
        # The broker cancels it when an operator deletes its queue.
        raw.add_on_cancel_callback(lambda _frame: channel.close())
        await channel.request(
            lambda done: raw.basic_consume(
                queue, _ignore, auto_ack=True, consumer_tag=queue, arguments={}, callback=done
            )
        )

    async def _bind(self, channel: OpenChannel, queue: str) -> None:
        raw = channel.raw
        if self._declares:
            await channel.request(lambda done: raw.exchange_declare(EVENTS, "topic", durable=True, callback=done))
        for pattern in self._patterns:
            await channel.request(partial(_bind, raw, queue, pattern))

    def _hear(self, _tag: int, _redelivered: bool, properties: Properties, body: bytes) -> None:  # noqa: FBT001 - a positional callback of pika
        if self._is_stopped:
            return
        topic = properties.routing_key or ""
        if topic != NEW_QUEUE:
            self._receive(topic, body)
        elif self._new_queue is not None:
            self._new_queue(body.decode(errors="replace"))


def _bind(raw: AmqpChannel, queue: str, pattern: str, done: "Done") -> None:
    raw.queue_bind(queue, EVENTS, pattern, callback=done)


def _explain(error: ChannelRefused) -> TaskMQError:
    if error.code == NOT_FOUND:
        return TopologyMismatch(
            f"exchange {EVENTS!r} does not exist at the broker: run `taskmq topology apply` as a user with the "
            "permission to configure"
        )
    return refusal(error)


def _ignore(*_: object) -> None:
    """Placeholder for pika's consumer callback: messages go through `AmqpChannel.receive_addressed`."""
