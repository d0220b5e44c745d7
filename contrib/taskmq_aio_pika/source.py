"""Messages of another system's queue, on this broker or another one, for a beat.

The connection is a plain one. aio-pika's robust connection redeclares and resumes consumers by itself, under the same
consumer tags, and one refused declaration ends them all. Here the beat calls `listen` every second, which restores
what was lost. A message is settled on its own channel or not at all: after a loss it is redelivered. A token is
renewed before it expires, and the connection continues with the newer one.
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

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 5.0
# aiormq considers a connection lost after this many heartbeats.
_SILENT_BEATS: Final = 3
_ARGUMENTS: FieldTable = {"x-queue-type": "quorum"}


def open_source(queue: SourceQueue) -> "AmqpSource":
    """Return a source of a queue's messages, not yet connected.

    Raises:
        InvalidSetting: the URL is malformed.
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
        self._settling = TaskSet(f"settles messages of {queue.name}", failure="settling a message failed")

    @property
    def address(self) -> str:
        """The broker, without user and password."""
        scheme, _, rest = self._endpoint.address.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"

    async def listen(self, deliver: Callable[[Delivery], None]) -> None:
        """See `MessageSource.listen`."""
        if self._listening is not None and await self._listening.is_alive():
            return
        self._disconnect()
        connecting = asyncio.ensure_future(self._connect(deliver))
        try:
            await _wait_for(connecting)
        except BaseException as error:
            self._disconnect()
            if (mended := self._error_for(error)) is None:
                raise
            raise mended from error

    async def stop(self) -> None:
        """See `MessageSource.stop`."""
        if self._tokens is not None:
            self._tokens.close()
        # Messages to requeue are settled before the connection closes.
        await self._settling.aclose(grace=_CLOSE_SECONDS)
        self._disconnect()
        await self._settling.aclose(grace=_CLOSE_SECONDS)

    async def _connect(self, deliver: Callable[[Delivery], None]) -> None:
        endpoint, queue, token = self._endpoint, self._queue, await self._fetch_token()
        self._token = token
        # Another node for each attempt.
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
            logging.getLogger("aiormq.connection").addFilter(_hides_frames)
            self._tokens = TokenHolder(self._endpoint, loop=asyncio.get_running_loop())
            self._tokens.on_renewed(self._renew)
        return await self._tokens.fetch_token()

    def _renew(self, secret: str) -> None:
        if self._connection is not None:
            self._settling.start(_renew(self._connection, secret))

    def _disconnect(self) -> None:
        connection, self._connection, self._listening = self._connection, None, None
        if connection is not None:
            # Not awaited: a connection found silent may never finish its own close.
            self._settling.start(_close(connection))

    def _error_for(self, error: BaseException) -> Exception | None:
        where = f"queue {self._queue.name!r} at {self.address}"
        match error:
            case ChannelNotFoundEntity():
                return QueueMissing(
                    self._queue.name, f"and it is not created here; {self.address} reported: {_words(error)}"
                )
            case ChannelPreconditionFailed():
                return TopologyMismatch(f"{where} exists with other properties: {_words(error)}")
            case (
                ChannelAccessRefused()
                | AuthenticationError()
                | ProbableAuthenticationError()
                | ConnectionNotAllowed()
            ):
                return AccessDenied(f"{self.address} refused the user: {_words(error)}{self._remedy()}")
            case TimeoutError():
                return BrokerUnavailable(f"{self.address} did not answer within {_CONNECT_SECONDS:g} s")
            case AMQPError() | OSError() | RuntimeError():
                return BrokerUnavailable(f"consuming from {where} failed: {_words(error)}")
            case _ if type(error) is Exception:
                # aiormq cancels pending calls with this error if it knows no reason.
                return BrokerUnavailable(f"consuming from {where} failed: the connection was lost")
            case _:
                return None

    def _remedy(self) -> str:
        if self._tokens is None or self._token is None:
            return ""
        # The next attempt reveals another problem, if any.
        self._tokens.on_refusal(self._token.secret)
        return f"; {self._tokens.remedy(self._token)}"


class _Listening:
    """Whether messages still arrive over a channel."""

    def __init__(self, channel: AbstractChannel, queue: str) -> None:
        self._channel = channel
        self._queue = queue
        self._is_cancelled = False

    async def is_alive(self) -> bool:
        """Whether the broker still serves the consumer and answers over its channel.

        It sends a request, since a connection that aiormq found silent can look open forever.
        """
        if self._is_cancelled or self._channel.is_closed:
            return False
        asking = asyncio.ensure_future(self._channel.declare_queue(self._queue, passive=True))
        try:
            await _wait_for(asking)
        except Exception:  # noqa: BLE001 - the next connection shows what is wrong
            return False
        return not self._is_cancelled

    def end(self, _: object) -> None:
        """Record that the broker cancelled the consumer, for example because the queue was deleted."""
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
        """Acknowledge the message; the result is never certain, since AMQP does not confirm acknowledgements."""
        self.ack()
        return False

    def requeue(self) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._settling.start(self._settle(self._message.nack(requeue=True)))

    @staticmethod
    async def _settle(settling: Any) -> None:
        # Over a lost channel nothing can be settled: the message is redelivered.
        with contextlib.suppress(Exception):
            await settling


async def _wait_for(work: asyncio.Future[T]) -> T:
    """Wait for `work` and return its result; give up after a timeout even if it cannot be cancelled.

    Raises:
        TimeoutError: it took too long.
        ConnectionError: aiormq cancelled it, as it does after finding the connection silent.
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


def _hides_frames(record: logging.LogRecord) -> bool:
    # aiormq's debug log contains the frames that it sends, and so renewed tokens.
    return record.levelno > logging.DEBUG or not str(record.msg).startswith("Prepare to send")


async def _renew(connection: AbstractConnection, secret: str) -> None:
    # If the connection is being lost, the next one starts with the newer token.
    with contextlib.suppress(Exception):
        await connection.update_secret(secret)


async def _close(connection: AbstractConnection) -> None:
    with contextlib.suppress(Exception):
        await connection.close()


def _words(error: BaseException) -> str:
    text = " ".join(str(each) for each in error.args if each is not None)
    return f"{type(error).__name__} {text}".strip()
