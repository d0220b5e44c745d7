"""RabbitMQ behind the contract of `taskmq.contracts.broker`."""

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from taskmq.contracts.broker import BrokerOptions, Browser, Delivery, Outgoing, QueueStats, Subscription
from taskmq.contracts.broker_abilities import ignore_connection
from taskmq.contracts.topology_plan import Topology
from taskmq.errors import BrokerUnavailable, QueueMissing
from taskmq.model.topology import ReportQueue, WorkQueue, dead_letter_queue, is_on_demand
from taskmq_rabbitmq.admin.http_api import Management
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.archive import keep_copy, read_archive
from taskmq_rabbitmq.connect.connection import Connection, ConnectionState
from taskmq_rabbitmq.connect.credentials import CredentialSource
from taskmq_rabbitmq.connect.handshake import OPEN_SECONDS
from taskmq_rabbitmq.consume.browse import browse
from taskmq_rabbitmq.consume.consumer import RabbitMQConsumer
from taskmq_rabbitmq.consume.delivery import DeliveryCounts, consumer_tag
from taskmq_rabbitmq.consume.listener import RabbitMQListener
from taskmq_rabbitmq.consume.watchdog import WATCH_SECONDS
from taskmq_rabbitmq.declare.declarations import Declarations
from taskmq_rabbitmq.declare.requests import queue_depth, refusal
from taskmq_rabbitmq.model.delay_ladder import LEVELS, level_name
from taskmq_rabbitmq.model.entities import NEW_QUEUE, archive
from taskmq_rabbitmq.model.routes import ARCHIVE
from taskmq_rabbitmq.model.url import Endpoint
from taskmq_rabbitmq.publish.broadcast import BroadcastPublisher
from taskmq_rabbitmq.publish.publisher import Publisher

if TYPE_CHECKING:
    from taskmq.contracts.finding import Finding

_LARGE: Final = 128 * 2**20
_SMALL: Final = 16 * 2**20
_DRAIN_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0
_PROBE: Final = "alarm.probe"


class RabbitMQBroker:
    """A `taskmq.contracts.broker.Broker`.

    Args:
        watch_seconds: interval at which consumers and declared objects are compared with the broker.
    """

    parcels = True
    """See `taskmq.contracts.broker.Parcelling`."""

    def __init__(self, endpoint: Endpoint, options: BrokerOptions, *, watch_seconds: float = WATCH_SECONDS) -> None:
        self._watch_seconds = watch_seconds
        self._endpoint = endpoint
        self._options = options
        self._counts = DeliveryCounts()
        self._numbers = itertools.count(1)
        self._consumers: list[RabbitMQConsumer] = []
        self._listeners: list[RabbitMQListener] = []
        self._endings: set[asyncio.Task[None]] = set()
        self._parts: _Parts | None = None
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RabbitMQBroker {self.address} {self._parts if self._parts is not None else 'not connected'}>"

    @property
    def address(self) -> str:
        return self._endpoint.address

    @property
    def max_message_bytes(self) -> int:
        version = self.server_version
        return _LARGE if version is not None and version < (4,) else _SMALL

    @property
    def server_version(self) -> tuple[int, ...] | None:
        """Version of the last connected node; None before."""
        if (parts := self._parts) is None:
            return None
        return parts.sending.server_version or parts.receiving.server_version

    @property
    def cluster_name(self) -> str | None:
        """Cluster name of the last connected node; None before."""
        if (parts := self._parts) is None:
            return None
        return parts.sending.cluster_name or parts.receiving.cluster_name

    @property
    def stale_settles(self) -> int:
        """Number of deliveries that were settled after their channel had ended."""
        return self._counts.stale_settles

    async def connect(self, *, timeout: float) -> None:
        await self._open().sending.wait_open(timeout)

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        await self._open().declarations.declare(queues)

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        await self._open().declarations.declare_reports(queues)

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        parts = self._parts or self._open()
        # A message within the smallest limit needs no look at the server's limit.
        limit = _SMALL if len(message.body) <= _SMALL else self.max_message_bytes
        if self._endpoint.archive is not None and message.queue == dead_letter_queue(message.queue):
            keep_copy(parts.publisher, message, timeout=timeout, limit=limit)
        return parts.publisher.publish(message, timeout=timeout, limit=limit)

    def publish_many(
        self, messages: Sequence[Outgoing], *, timeout: float
    ) -> "asyncio.Future[list[Exception | None]]":
        """See `taskmq.contracts.broker.PublishingMany`."""
        parts = self._parts or self._open()
        limit = self.max_message_bytes
        if self._endpoint.archive is not None:
            for message in messages:
                if message.queue == dead_letter_queue(message.queue):
                    keep_copy(parts.publisher, message, timeout=timeout, limit=limit)
        return parts.publisher.publish_many(messages, timeout=timeout, limit=limit)

    async def read_archive(self, *, offset: int = 0, limit: int) -> list[tuple[int, Delivery]]:
        """See `taskmq.contracts.broker.Archiving`."""
        tag = consumer_tag(ARCHIVE, next(self._numbers))
        return await read_archive(self._open().receiving, offset=offset, limit=limit, tag=tag, counts=self._counts)

    async def consume(
        self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]
    ) -> RabbitMQConsumer:
        parts = self._open()
        subscriptions = list(subscriptions)
        await parts.declarations.look_for_letters(subscription.queue for subscription in subscriptions)
        consumer = await RabbitMQConsumer.start(
            subscriptions,
            deliver,
            connection=parts.receiving,
            declarations=parts.declarations,
            counts=self._counts,
            numbers=self._numbers,
            watch_seconds=self._watch_seconds,
            timeout_of_nodes=self._endpoint.consumer_timeout,
            is_told=self._hears_of_queues,
        )
        self._consumers = [other for other in self._consumers if not other.stopped]
        self._consumers.append(consumer)
        return consumer

    async def bind(self, queue: str, *, exchange: str, patterns: Collection[str]) -> None:
        """See `taskmq.contracts.broker.Topical`."""
        await self._open().declarations.bind(queue, exchange, patterns)

    def announce(self, topic: str, body: bytes) -> bool:
        """See `taskmq.contracts.broker.Broadcasting`."""
        if self._closing is not None:
            return False
        return (self._parts or self._open()).announcements.announce(topic, body)

    async def listen(
        self,
        patterns: Collection[str],
        receive: Callable[[str, bytes], None],
        *,
        connected: Callable[[bool], None] = ignore_connection,
    ) -> RabbitMQListener:
        """See `taskmq.contracts.broker.Broadcasting`."""

        def on_connected(is_connected: bool) -> None:  # noqa: FBT001 - called by position
            if is_connected:
                self._check_absent()
            connected(is_connected)

        listener = RabbitMQListener(
            patterns,
            receive,
            connection=self._open().receiving,
            declares=self._endpoint.declare != "off",
            loop=asyncio.get_running_loop(),
            renew_seconds=self._watch_seconds,
            # Processes that do not consume need no permission for it.
            new_queue=self._expect if self._consumers else None,
            connected=on_connected,
        )
        has_heard = self._hears_of_queues()
        self._listeners.append(listener)
        try:
            await listener.start()
        except BaseException:
            await listener.stop()
            raise
        if listener.hears_of_queues and not has_heard:
            # A queue may have been declared since its consumer found it absent.
            self._check_absent()
        return listener

    def _expect(self, queue: str) -> None:
        for consumer in self._consumers:
            consumer.expect(queue)

    def _check_absent(self) -> None:
        for consumer in self._consumers:
            consumer.look()

    def _hears_of_queues(self) -> bool:
        return any(listener.hears_of_queues for listener in self._listeners)

    def _tell_of_queue(self, queue: str) -> None:
        if is_on_demand(queue):
            self._expect(queue)
            self.announce(NEW_QUEUE, queue.encode())

    def browse(self, queue: str) -> AbstractAsyncContextManager[Browser]:
        tag = consumer_tag(queue, next(self._numbers))
        return browse(self._open().receiving, queue, tag=tag, counts=self._counts, endings=self._endings)

    async def purge(self, queue: str) -> int:
        async def empty(channel: OpenChannel) -> int:
            return (await channel.request(lambda done: channel.raw.queue_purge(queue, done))).message_count

        try:
            return await self._open().asking().ask(empty)
        except ChannelRefused as error:
            raise refusal(error, queue) from error

    async def delete(self, queue: str) -> int:
        """See `taskmq.contracts.broker.Deleting`."""

        async def delete(channel: OpenChannel) -> int:
            return (await channel.request(lambda done: channel.raw.queue_delete(queue, callback=done))).message_count

        parts = self._open()
        # Deleting a missing object succeeds.
        await queue_depth(parts.asking(), queue)
        parts.declarations.give_up(queue)
        try:
            return await parts.asking().ask(delete)
        except ChannelRefused as error:
            raise refusal(error, queue) from error

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        connection = self._open().asking()
        found: list[QueueStats] = []
        # RabbitMQ logs every check of a missing queue, and some callers check all the time.
        absent = {queue for consumer in self._consumers for queue in consumer.absent}
        for queue in queues:
            if queue in absent:
                continue
            try:
                ready, consumers = await queue_depth(connection, queue)
            except QueueMissing:
                continue
            found.append(QueueStats(queue, ready=ready, unsettled=None, delayed=None, consumers=consumers))
        return found

    async def alarm(self) -> str | None:
        """See `taskmq.contracts.broker.Alarming`."""
        parts = self._open()
        await parts.sending.wait_open(OPEN_SECONDS)
        # RabbitMQ blocks a connection, and reports it, once it has published during the alarm.
        parts.announcements.announce(_PROBE, b"{}")
        return parts.sending.blocked

    async def count_unsettled(self) -> Mapping[str, int] | None:
        """See `taskmq.contracts.broker.Counting`."""
        from taskmq_rabbitmq.admin.inspection import count_unsettled

        return await count_unsettled(self._open().management)

    async def count_delayed(self) -> int:
        """See `taskmq.contracts.broker.Counting`."""
        return sum(level.ready for level in await self.stats(map(level_name, range(LEVELS))))

    async def diagnose(
        self, loads: Mapping[WorkQueue, float | None], *, watch: float = 0, hands_over: bool = False
    ) -> "list[Finding]":
        """See `taskmq.contracts.broker.Diagnosable`."""
        from taskmq_rabbitmq.admin.doctor import diagnose

        parts = self._open()
        connection = parts.asking()
        await connection.wait_open(OPEN_SECONDS)
        return await diagnose(
            self,
            endpoint=self._endpoint,
            connection=connection,
            separate=parts.separate,
            management=parts.management,
            topology=self.topology(loads),
            loads=loads,
            watch=watch,
            hands_over=hands_over,
            clock=self._options.clock,
        )

    def topology(self, queues: Iterable[WorkQueue]) -> Topology:
        """See `taskmq.contracts.topology_plan.Plannable`."""
        from taskmq_rabbitmq.topology_admin import TopologyAdmin

        parts = self._open()
        return TopologyAdmin(
            self._endpoint,
            queues,
            connection=parts.asking(),
            separate=parts.separate,
            management=parts.management,
            made=self._tell_of_queue,
        )

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="taskmq broker closes")
        # A caller that stops waiting, or calls again, changes nothing.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if (parts := self._parts) is None:
            return
        await asyncio.gather(
            *(consumer.stop() for consumer in self._consumers),
            *(listener.stop() for listener in self._listeners),
            *self._endings,
        )
        await asyncio.gather(parts.publisher.close(_DRAIN_SECONDS), parts.announcements.close())
        await asyncio.gather(parts.sending.close(_CLOSE_SECONDS), parts.receiving.close(_CLOSE_SECONDS))
        parts.login.close()

    def _open(self) -> "_Parts":
        if self._closing is not None:
            raise BrokerUnavailable(f"the broker object for {self.address} was closed")
        if self._parts is None:
            self._parts = _Parts(self._endpoint, self._options, asyncio.get_running_loop(), made=self._tell_of_queue)
        return self._parts


class _Parts:
    """Objects that belong to one event loop. Connections open on first use."""

    def __init__(
        self,
        endpoint: Endpoint,
        options: BrokerOptions,
        loop: asyncio.AbstractEventLoop,
        *,
        made: Callable[[str], None],
    ) -> None:
        self.login = CredentialSource(endpoint, loop=loop)
        self._app = options.app
        self.sending, self.receiving = (
            Connection(endpoint, self.login, name=options.name, role=role, loop=loop, app=options.app)
            for role in ("publish", "consume")
        )
        self.declarations = Declarations(
            self.asking,
            passive=endpoint.declare == "off",
            keeps=() if endpoint.archive is None else archive(endpoint.archive.age, endpoint.archive.bytes),
            made=made,
        )
        self.publisher = Publisher(
            self.sending,
            self.declarations,
            clock=options.clock,
            loop=loop,
        )
        self.announcements = BroadcastPublisher(self.sending, declares=endpoint.declare != "off", loop=loop)
        self.management = Management(
            endpoint,
            token=self.login.secret if endpoint.token is not None else None,
            cluster_name=self._cluster_name,
        )
        self._endpoint = endpoint
        self._loop = loop

    def __repr__(self) -> str:
        return f"{self.sending!r} {self.receiving!r} {self.publisher!r}"

    async def _cluster_name(self) -> str | None:
        connection = self.asking()
        await connection.wait_open(OPEN_SECONDS)
        return connection.cluster_name

    def asking(self) -> Connection:
        """Return the connection for requests: the one that the broker does not block, or the only one in use."""
        if self.receiving.state is not ConnectionState.IDLE or self.sending.blocked is not None:
            return self.receiving
        return self.sending

    def separate(self, name: str) -> Connection:
        """Return a separate connection, whatever the wire is; the caller closes it."""
        endpoint = replace(self._endpoint, wire="fast")
        return Connection(endpoint, self.login, name=name, role="publish", loop=self._loop, app=self._app)
