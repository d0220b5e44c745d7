"""The messages of a queue of another system's, on this broker or another one, for a beat.

The connection is a plain one. aio-pika's robust connection declares and consumes again by itself, under the same
consumer tags, and one refused declaration ends all of it; here the beat calls `listen` each second, and what was lost
is made anew. A message is settled on the channel that it came over, or not at all: after a loss it comes
again. A token is renewed before it expires, and the connection goes on with the newer one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aio_pika.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ProbableAuthenticationError,
)
from aiormq.exceptions import ChannelAccessRefused, ConnectionNotAllowed
from pamqp.common import FieldTable

from taskmq.contracts.broker import Delivery
from taskmq.contracts.source import SourceQueue
from taskmq.durable.task_set import TaskSet
from taskmq.errors import AccessDenied, BrokerUnavailable, QueueMissing, TopologyMismatch
from taskmq_rabbitmq.connect.token_holder import TokenHolder
from taskmq_rabbitmq.model.tokens import Token
from taskmq_rabbitmq.model.url import Endpoint, parse_url, tls_context

__all__ = ["AmqpSource", "open_source"]

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 5.0
# aiormq takes a connection for lost after so many heartbeats.
_SILENT_BEATS: Final = 3
_ARGUMENTS: FieldTable = {"x-queue-type": "quorum"}


def open_source(queue: SourceQueue) -> "AmqpSource":
    """Make what takes the messages of a queue, not yet connected.

    Raises:
        InvalidSetting: the URL cannot be read.
    """
    return AmqpSource(queue)


class AmqpSource:
    """See `taskmq.contracts.source.MessageSource`."""

    def __init__(self, queue: SourceQueue) -> None:
        self._queue = queue
        self._endpoint: Endpoint = parse_url(queue.url)
        self._next_host = 0
        self._tokens: TokenHolder | None = None
        self._token: Token | None = None
        self._connection: AbstractConnection | None = None
        self._listening: _Listening | None = None
        self._settling = TaskSet(f"settles messages of {queue.name}", failure="a message was not settled")

    @property
    def address(self) -> str:
        """The broker, without user and password."""
        scheme, _, rest = self._endpoint.address.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    async def listen(self, deliver: Callable[[Delivery], None]) -> None:
        """See `MessageSource.listen`."""
        if self._listening is not None and await self._listening.goes_on():
            return
        self._disconnect()
        connecting = asyncio.ensure_future(self._connect(deliver))
        try:
            await _ended(connecting)
        except BaseException as error:
            self._disconnect()
            if (mended := self._error_for(error)) is None:
                raise
            raise mended from error

    async def stop(self) -> None:
        """See `MessageSource.stop`."""
        if self._tokens is not None:
            self._tokens.close()
        # What is given back goes before the connection.
        await self._settling.aclose(grace=_CLOSE_SECONDS)
        self._disconnect()
        await self._settling.aclose(grace=_CLOSE_SECONDS)

    async def _connect(self, deliver: Callable[[Delivery], None]) -> None:
        endpoint, queue, token = self._endpoint, self._queue, await self._fetch_token()
        self._token = token
        # Another node each time.
        host = endpoint.hosts[self._next_host % len(endpoint.hosts)]
        self._next_host += 1
        heartbeat = max(1, endpoint.heartbeat // _SILENT_BEATS) if endpoint.heartbeat else 0
        self._connection = await aio_pika.connect(
            host=host.name,
            port=host.port,
            login=endpoint.user,
            password=token.secret,
            auth="EXTERNAL" if endpoint.auth == "external" else None,
            virtualhost=endpoint.vhost,
            ssl=endpoint.tls is not None,
            ssl_context=None if endpoint.tls is None else tls_context(endpoint.tls),
            client_properties={"connection_name": queue.client},
            heartbeat=heartbeat,
        )
        if self._tokens is not None and (newer := self._tokens.newer(token.secret)) is not None:
            await self._connection.update_secret(newer)
        channel = await self._connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=queue.prefetch)
        if queue.exchange:
            taken = await channel.declare_queue(queue.name, durable=True, arguments=_ARGUMENTS)
            for key in queue.keys:
                await taken.bind(queue.exchange, key)
        else:
            taken = await channel.get_queue(queue.name)
        listening = _Listening(channel, queue.name)
        underlay = await channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(listening.end)

        async def receive(message: AbstractIncomingMessage) -> None:
            deliver(_SourceDelivery(message, queue.name, self._settling))

        await taken.consume(receive)
        self._listening = listening

    async def _fetch_token(self) -> Token:
        if self._endpoint.token is None:
            return Token(self._endpoint.password)
        if self._tokens is None:
            logging.getLogger("aiormq.connection").addFilter(_shows_no_frame)
            self._tokens = TokenHolder(self._endpoint, loop=asyncio.get_running_loop())
            self._tokens.on_renewed(self._renew)
        return await self._tokens.fetched()

    def _renew(self, secret: str) -> None:
        if self._connection is not None:
            self._settling.start(_renew(self._connection, secret))

    def _disconnect(self) -> None:
        connection, self._connection, self._listening = self._connection, None, None
        if connection is not None:
            # Not waited for: a connection that was found silent may never end its own close.
            self._settling.start(_close(connection))

    def _error_for(self, error: BaseException) -> Exception | None:
        where = f"queue {self._queue.name!r} at {self.address}"
        match error:
            case ChannelNotFoundEntity():
                return QueueMissing(self._queue.name, f"nor is it made here; {self.address} says: {_words(error)}")
            case ChannelPreconditionFailed():
                return TopologyMismatch(f"{where} is there with other properties: {_words(error)}")
            case (
                ChannelAccessRefused()
                | AuthenticationError()
                | ProbableAuthenticationError()
                | ConnectionNotAllowed()
            ):
                return AccessDenied(f"{self.address} refuses the user: {_words(error)}{self._remedy()}")
            case TimeoutError():
                return BrokerUnavailable(f"{self.address} did not answer within {_CONNECT_SECONDS:g} s")
            case AMQPError() | OSError() | RuntimeError():
                return BrokerUnavailable(f"{where} cannot be listened to: {_words(error)}")
            case _ if type(error) is Exception:
                # With which aiormq ends what waits where it knows no reason.
                return BrokerUnavailable(f"{where} cannot be listened to: the connection was lost")
            case _:
                return None

    def _remedy(self) -> str:
        if self._tokens is None or self._token is None:
            return ""
        # The next attempt shows another one, if there is any.
        self._tokens.refused(self._token.secret)
        return f"; {self._tokens.remedy(self._token)}"


class _Listening:
    """Whether messages still come over a channel."""

    def __init__(self, channel: AbstractChannel, queue: str) -> None:
        self._channel = channel
        self._queue = queue
        self._is_cancelled = False

    async def goes_on(self) -> bool:
        """Whether the broker has not cancelled the consumer, and answers over its channel.

        Asked, since a connection that aiormq has found silent can look open for ever.
        """
        if self._is_cancelled or self._channel.is_closed:
            return False
        asking = asyncio.ensure_future(self._channel.declare_queue(self._queue, passive=True))
        try:
            await _ended(asking)
        except Exception:  # noqa: BLE001 - whatever it is, the next connection shows whether the broker is there
            return False
        return not self._is_cancelled

    def end(self, _: object) -> None:
        """Take note that the broker has cancelled the consumer, for example since the queue was deleted."""
        self._is_cancelled = True


class _SourceDelivery:
    """See `taskmq.contracts.broker.Delivery`."""

    def __init__(self, message: AbstractIncomingMessage, queue: str, settling: TaskSet) -> None:
        self._message = message
        self._settling = settling
        self._is_settled = False
        self.queue: str = queue

    @property
    def body(self) -> bytes:
        return self._message.body

    @property
    def content_type(self) -> str | None:
        return self._message.content_type

    @property
    def message_id(self) -> str | None:
        return self._message.message_id

    @property
    def task(self) -> str | None:
        return self._message.type

    @property
    def routing_key(self) -> str:
        return self._message.routing_key or ""

    @property
    def redelivered(self) -> bool:
        return bool(self._message.redelivered)

    @property
    def headers(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", self._message.headers)

    def ack(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._settling.start(self._settle(self._message.ack()))

    async def ack_confirmed(self) -> bool:
        """Take the message off the broker; never sure, since the broker does not answer to that here."""
        self.ack()
        return False

    def requeue(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._settling.start(self._settle(self._message.nack(requeue=True)))

    @staticmethod
    async def _settle(settling: Any) -> None:
        # Over a channel that is lost nothing can be settled: the message comes again.
        with contextlib.suppress(Exception):
            await settling


async def _ended(work: asyncio.Future[T]) -> T:
    """Return what the work returns; leave it alone where it takes too long, also if it cannot be cancelled.

    Raises:
        TimeoutError: it takes too long.
        ConnectionError: aiormq has cancelled it, as it does where it has found the connection silent.
    """
    try:
        await asyncio.wait({work}, timeout=_CONNECT_SECONDS)
        if not work.done():
            raise TimeoutError
        if work.cancelled():
            raise ConnectionError("the connection was lost")
        return work.result()
    finally:
        work.cancel()


def _shows_no_frame(record: logging.LogRecord) -> bool:
    # aiormq's debug log has each frame that it sends as it is, and so the newer tokens.
    return record.levelno > logging.DEBUG or not str(record.msg).startswith("Prepare to send")


async def _renew(connection: AbstractConnection, secret: str) -> None:
    # Where the connection is being lost, the next one begins with the newer token.
    with contextlib.suppress(Exception):
        await connection.update_secret(secret)


async def _close(connection: AbstractConnection) -> None:
    with contextlib.suppress(Exception):
        await connection.close()


def _words(error: BaseException) -> str:
    text = " ".join(str(each) for each in error.args if each is not None)
    return f"{type(error).__name__} {text}".strip()
