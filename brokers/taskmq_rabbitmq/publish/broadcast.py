"""Publisher of announcements: a channel of its own next to the publisher's, on the same connection.

Nothing here waits, is confirmed, or is sent twice. The broker drops announcements without a listener. `announce`
drops them, and returns False, while the broker blocks the connection, while the socket accepts nothing (1 MiB), and
while there is no channel and 1,000 of them (1 MiB) wait for one. Announcements that have waited for more than 5 s
when the channel opens are dropped, too, as outdated.

A refusal (no permission, no exchange and no declaring) closes this channel and no other. Each reason is logged once,
and the channel is opened again after a minute. A deleted exchange is declared again immediately, if that is allowed.
"""

import asyncio
import contextlib
from collections import deque
from typing import Final

from taskmq.contracts.loggers import contained_logger
from taskmq.errors import AccessDenied, BrokerUnavailable
from taskmq_rabbitmq.amqp.channels import ChannelRefused, OpenChannel
from taskmq_rabbitmq.amqp.fast_connection import AmqpChannel
from taskmq_rabbitmq.connect.backoff import reconnect_backoff
from taskmq_rabbitmq.connect.connection import Connection, ConnectionState
from taskmq_rabbitmq.model.access_refused import NOT_FOUND
from taskmq_rabbitmq.model.entities import EVENTS

_log = contained_logger(__name__)
_WAITING: Final = 1_000
_WAITING_BYTES: Final = 2**20
_UNSENT_BYTES: Final = 2**20
_FRESH_SECONDS: Final = 5.0
_REFUSED_SECONDS: Final = 60.0
_LAST_SECONDS: Final = 2.0
_TOPIC_BYTES: Final = 255


class BroadcastPublisher:
    """The announcing side of one broker object.

    Args:
        connection: the publishing one.
        declares: whether the exchange may be declared.
    """

    def __init__(self, connection: Connection, *, declares: bool, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._declares = declares
        self._loop = loop
        self._raw: AmqpChannel | None = None
        self._waiting: deque[tuple[float, str, bytes]] = deque()
        self._waiting_bytes = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._upkeep: asyncio.Task[None] | None = None
        self._is_refused = False
        self._is_closed = False
        self._complaint = ""

    def announce(self, topic: str, body: bytes) -> bool:
        """See `taskmq.contracts.broker.Broadcasting`."""
        if self._is_closed or self._is_refused or len(topic.encode()) > _TOPIC_BYTES:
            return False
        if self._connection.blocked is not None:
            return False
        if self._raw is not None and self._raw.is_open:
            return self._write(self._raw, topic, body)
        return self._keep_for_channel(topic, body)

    def _keep_for_channel(self, topic: str, body: bytes) -> bool:
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] < now - _FRESH_SECONDS:
            self._waiting_bytes -= len(self._waiting.popleft()[2])
        if len(self._waiting) >= _WAITING or self._waiting_bytes + len(body) > _WAITING_BYTES:
            return False
        self._waiting.append((now, topic, body))
        self._waiting_bytes += len(body)
        self._is_empty.clear()
        if self._upkeep is None:
            self._upkeep = self._loop.create_task(self._keep_channel(), name="taskmq announcements")
        return True

    async def close(self) -> None:
        """Close the channel; written announcements are in transit. May be called twice."""
        if self._connection.state in (ConnectionState.CONNECTING, ConnectionState.OPEN):
            # It may have been opened for waiting announcements.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), _LAST_SECONDS)
        self._is_closed = True
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait({self._upkeep})
            self._upkeep = None

    def _write(self, raw: AmqpChannel, topic: str, body: bytes) -> bool:
        if self._connection.blocked is not None or raw.unsent > _UNSENT_BYTES:
            return False
        raw.announce(EVENTS, topic, body)
        return True

    async def _keep_channel(self) -> None:
        backoff = reconnect_backoff()
        while True:
            try:
                channel = await self._connection.channel(None)
                await self._use(channel)
                backoff.reset()
                end = await channel.end()
            except AccessDenied:
                # The connection logs it, and paces its next attempt.
                continue
            except BrokerUnavailable:
                await asyncio.sleep(backoff.next())
                continue
            except ChannelRefused as refused:
                end = refused
            self._raw = None
            if isinstance(end, ChannelRefused):
                if end.code == NOT_FOUND and self._declares:
                    # The exchange was deleted: the next channel declares it.
                    await asyncio.sleep(backoff.next())
                else:
                    await self._pause(end)

    async def _use(self, channel: OpenChannel) -> None:
        raw = channel.raw
        if self._declares:
            await channel.request(lambda done: raw.exchange_declare(EVENTS, "topic", durable=True, callback=done))
        oldest = self._loop.time() - _FRESH_SECONDS
        for since, topic, body in self._waiting:
            if since > oldest:
                self._write(raw, topic, body)
        self._forget()
        self._raw = raw

    async def _pause(self, refused: ChannelRefused) -> None:
        complaint, self._complaint = self._complaint, str(refused)
        if complaint != self._complaint:
            self._warn(refused)
        self._forget()
        self._is_refused = True
        try:
            await asyncio.sleep(_REFUSED_SECONDS)
        finally:
            self._is_refused = False

    def _warn(self, refused: ChannelRefused) -> None:
        _log.warning(
            "events are not published, tasks continue: the broker refused (%s); permit the user to write to "
            "exchange %r, or run `taskmq topology apply` if it is missing",
            refused,
            EVENTS,
        )

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self._is_empty.set()
