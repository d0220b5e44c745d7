"""Stream of live events: `async with app.events() as events`, then `async for event in events`.

Workers publish job events only while a reader listens: a stream requests them from all workers when it opens, and
again every 20 s while it is open; a worker without a request for a minute stops. So observation costs only while it
is used, and a worker that starts, or was disconnected, publishes within 20 s.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from taskmq.contracts.broker import Broker
from taskmq.contracts.broker_abilities import Broadcasting, Listening, ignore_connection
from taskmq.errors import InvalidOption, MalformedMessage, UnsupportedFeature
from taskmq.model.commands import WATCH, Command, command_topic, encode_command
from taskmq.model.telemetry.events import ALL_EVENTS, Event, EventBatch, decode_batch, worker_topic

_log = logging.getLogger("taskmq.events")

WATCH_SECONDS: Final = 60.0
_ASK_AGAIN: Final = 20.0
_WORKERS_ONLY: Final = "worker."
_LAST_WORDS: Final = worker_topic("offline")


def as_broadcasting(broker: Broker) -> Broadcasting:
    """Return the broker if it has broadcasts.

    Raises:
        UnsupportedFeature: it has none.
    """
    if not isinstance(broker, Broadcasting):
        raise UnsupportedFeature(
            f"the broker {broker.address} has no broadcasts, so there are no events and no commands to workers"
        )
    return broker


class EventStream:
    """Events from the start of the block, in order for each worker and topic.

    A reader that is slower than the events misses the oldest; a lost connection misses those published meanwhile.

    Args:
        broker: opened when the block is entered.
        topics: patterns, see `taskmq.events`; `*` is one word, `#` any number. None: all events.
        buffer: maximum of events that wait here.
        connected: called with False when the connection is lost, and with True when events arrive again.

    Attributes:
        missed: number of events dropped here, because more than `buffer` waited.
        dropped: number of events that workers dropped while this stream was open.

    Raises:
        InvalidOption: `buffer` below 1.
    """

    def __init__(
        self,
        broker: Callable[[], Broker],
        *topics: str,
        buffer: int = 10_000,
        connected: Callable[[bool], None] = ignore_connection,
    ) -> None:
        if buffer < 1:
            raise InvalidOption("buffer: must be at least 1")
        self.missed: int = 0
        self.dropped: int = 0
        self._open = broker
        self._topics = topics or ALL_EVENTS
        self._buffer = buffer
        self._connected = connected
        self._waiting: deque[Event] = deque()
        self._counts: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._listening: Listening | None = None
        self._asking: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            BrokerUnavailable: the broker could not be reached, or this user may not listen.
            TopologyMismatch: a needed object does not exist at the broker, and this user may not declare it.
            UnsupportedFeature: the broker has no broadcasts.
        """
        broker = as_broadcasting(self._open())
        self._listening = await broker.listen(self._topics, self._receive, connected=self._connected)
        if not all(topic.startswith(_WORKERS_ONLY) for topic in self._topics):
            _ask(broker)
            self._asking = asyncio.create_task(_ask_again(broker), name="taskmq events")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._changed.set()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})
        if self._listening is not None:
            await self._listening.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._is_closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft()

    def _receive(self, topic: str, body: bytes) -> None:
        try:
            batch = decode_batch(topic, body)
        except MalformedMessage as error:
            _log.debug("ignoring a malformed message of topic %r: %s", topic, error)
            return
        self._count(topic, batch)
        self._waiting.extend(batch.events)
        while len(self._waiting) > self._buffer:
            self._waiting.popleft()
            self.missed += 1
        self._changed.set()

    def _count(self, topic: str, batch: EventBatch) -> None:
        before = self._counts.get(batch.worker, batch.dropped)
        # A worker that restarted under its old name counts from 0.
        self.dropped += batch.dropped - before if batch.dropped >= before else batch.dropped
        if topic == _LAST_WORDS:
            self._counts.pop(batch.worker, None)
        else:
            self._counts[batch.worker] = batch.dropped


async def _ask_again(broker: Broadcasting) -> None:
    while True:
        await asyncio.sleep(_ASK_AGAIN)
        _ask(broker)


def _ask(broker: Broadcasting) -> None:
    command = Command(id=secrets.token_hex(8), name=WATCH, seconds=WATCH_SECONDS)
    broker.announce(command_topic(WATCH), encode_command(command))
