"""The server's shared event subscription: it listens to the broker, polls the store, and fans out to streams."""

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Broker
from taskmq.durable.task_set import TaskSet
from taskmq.errors import TaskMQError
from taskmq.events.stream import EventStream
from taskmq.model.telemetry.events import Event, JobEvent
from taskmq.server.live.store_events import StoreEvents

_REMEMBERED: Final = 1_000
_BUFFER: Final = 1_000
_STREAMS: Final = 3_072
_RETRY_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 1.0


class HubEvent(NamedTuple):
    """An event with this server's sequence number.

    Attributes:
        event: None if the broker connection was lost or restored.
    """

    number: int
    event: Event | None
    is_connected: bool = True


class EventCounter:
    """Matching events counted by kind, shared by all streams with the same filter.

    Attributes:
        counts: events since the first of these streams opened.
        number: the number of the last counted event.
        readers: the number of streams that read it.
    """

    def __init__(self, fits: Callable[[Event], bool]) -> None:
        self.counts: Counter[str] = Counter()
        self.number: int = 0
        self.readers: int = 0
        self._fits = fits
        self._waiting: set[asyncio.Event] = set()

    def put(self, number: int, event: Event) -> None:
        """Count the event if it matches."""
        if self._fits(event):
            self.counts[kind_of(event)] += 1
            self.number = number
            for changed in self._waiting:
                changed.set()
            self._waiting.clear()

    def wake(self, changed: asyncio.Event) -> None:
        """Set this event once, when the next event is counted."""
        self._waiting.add(changed)

    def forget(self, changed: asyncio.Event) -> None:
        """Stop waiting for the next event."""
        self._waiting.discard(changed)


class EventInbox:
    """The pending events of one stream: at most 1,000 events, or only counts by kind.

    Args:
        counter: counts events instead of storing them. Connection changes are still stored.

    Attributes:
        missed: events dropped since the last read.
        is_over: whether the stream has ended.
    """

    def __init__(self, fits: Callable[[Event], bool], counter: EventCounter | None = None) -> None:
        self.missed: int = 0
        self.is_over: bool = False
        self.counter: EventCounter | None = counter
        self._number = 0
        self._fits = fits
        self._seen = Counter[str]() if counter is None else counter.counts.copy()
        self._waiting: deque[HubEvent] = deque()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def number(self) -> int:
        """The number of the last event that was stored or counted."""
        return self._number if self.counter is None else max(self._number, self.counter.number)

    def put(self, event: HubEvent) -> None:
        """Store the event if the stream's filter matches."""
        if event.event is not None and not self._fits(event.event):
            return
        self._number = event.number
        self._changed.set()
        if self.counter is not None and event.event is not None:
            # A replayed event: the counter counted it before the stream opened, or never.
            self._seen[kind_of(event.event)] -= 1
            return
        if len(self._waiting) >= _BUFFER:
            self._waiting.popleft()
            self.missed += 1
        self._waiting.append(event)

    def end(self) -> None:
        """End the stream, which then reports no more events."""
        self.is_over = True
        self._ended.set()
        self._changed.set()

    async def take(self, timeout: float) -> list[HubEvent]:
        """Return the pending events. Returns an empty list after the timeout, if only counts changed, or if the
        stream ended.
        """
        if not self._waiting and not self._has_counted() and not self.is_over:
            await self._change(timeout)
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def take_counts(self) -> Counter[str]:
        """Return the number of events by kind since the last call."""
        if self.counter is None:
            return Counter()
        found = self.counter.counts - self._seen
        self._seen = self.counter.counts.copy()
        return found

    async def pause(self, seconds: float) -> None:
        """Return after this many seconds, or when the stream ends. Events meanwhile stay pending."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _has_counted(self) -> bool:
        return self.counter is not None and self.counter.counts != self._seen

    async def _change(self, timeout: float) -> None:
        """Wait for an event, the end of the stream or the timeout."""
        self._changed.clear()
        if self.counter is not None:
            self.counter.wake(self._changed)
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            if self.counter is not None:
                self.counter.forget(self._changed)


def kind_of(event: Event) -> str:
    """Return the kind of the stream message for the event."""
    return "job" if isinstance(event, JobEvent) else "worker"


class EventHub:
    """Listens to events while at least one stream is open.

    If all streams are taken, a tenant with fewer streams replaces one of the tenant with the most.

    Args:
        most: the maximum number of open streams.

    Attributes:
        name: a random name of this server run, with which event ids begin.
    """

    def __init__(self, app: TaskMQ, *, most: int = _STREAMS) -> None:
        self.name: str = secrets.token_hex(4)
        self._app = app
        self._most = most
        # Each with its tenant, in the order they were opened.
        self._subscriptions: dict[EventInbox, str] = {}
        # For streams in digest mode, by their filter.
        self._counters: dict[Callable[[Event], bool], EventCounter] = {}
        self._users: Counter[str] = Counter()
        self._last: deque[HubEvent] = deque(maxlen=_REMEMBERED)
        # The first event has number 1.
        self._number = -1
        self._tasks = TaskSet("server events", failure="the server stopped following events")
        self._listening: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        # Set once the broker is connected, or known to be unreachable.
        self._is_ready = asyncio.Event()
        # Set after the first poll of the store.
        self._is_watched = asyncio.Event()
        self._is_connected = True
        self._is_closed = False

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._subscriptions)

    def streams_of(self, user: str) -> int:
        """Return the number of open streams of a user."""
        return self._users[user]

    def has_room(self, tenant: str) -> bool:
        """Whether a tenant may open another stream, possibly replacing one of a tenant with more."""
        if len(self._subscriptions) < self._most:
            return True
        counts = self._open_of_tenants()
        return counts.total() < self._most or counts[tenant] + 1 < max(counts.values())

    @asynccontextmanager
    async def subscribe(
        self,
        user: str,
        fits: Callable[[Event], bool],
        *,
        tenant: str = "",
        last_id: str | None = None,
        is_counting: bool = False,
    ) -> AsyncGenerator[tuple[EventInbox, bool]]:
        """Yield a stream's inbox within the block, and whether events after `last_id` may be missing.

        Args:
            tenant: the tenant of the stream; "" for the instance.
            fits: the filter. Counting streams with equal filters share one counter.
        """
        subscription = EventInbox(fits, self._counters.setdefault(fits, EventCounter(fits)) if is_counting else None)
        if self._is_closed:
            subscription.end()
        elif self._listening is None or self._listening.done():
            self._begin()
        has_gap = not self._replay(subscription, last_id)
        self._make_room()
        self._subscriptions[subscription] = tenant
        self._users[user] += 1
        counter = subscription.counter
        if counter is not None:
            counter.readers += 1
        try:
            yield subscription, has_gap
        finally:
            del self._subscriptions[subscription]
            if counter is not None:
                counter.readers -= 1
                if not counter.readers:
                    del self._counters[fits]
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]
            if not self._subscriptions and self._listening is not None:
                # Cancellation takes a while, and a new stream meanwhile needs new tasks. `_tasks` awaits the old
                # ones.
                for task in (self._listening, self._watching):
                    if task is not None:
                        task.cancel()
                self._listening = self._watching = None

    async def wait_until_ready(self) -> None:
        """Wait until the broker and the store were reached or found unreachable, or the hub closed."""
        for signal in (self._is_ready, self._is_watched):
            if not self._is_closed:
                await signal.wait()

    def close(self) -> None:
        """End all streams, including new ones, because the server stops."""
        self._is_closed = True
        self._is_ready.set()
        self._is_watched.set()
        for subscription in self._subscriptions:
            subscription.end()

    async def aclose(self) -> None:
        """Close the hub and its broker subscription."""
        self.close()
        await self._tasks.aclose()

    def _open_of_tenants(self) -> Counter[str]:
        """Count the open streams of each tenant, except those that are ending."""
        return Counter(tenant for inbox, tenant in self._subscriptions.items() if not inbox.is_over)

    def _make_room(self) -> None:
        """If all streams are taken, end the newest stream of the tenant with the most."""
        if len(self._subscriptions) < self._most or (counts := self._open_of_tenants()).total() < self._most:
            return
        ((largest, _),) = counts.most_common(1)
        theirs = (inbox for inbox, tenant in reversed(self._subscriptions.items()) if tenant == largest)
        next(inbox for inbox in theirs if not inbox.is_over).end()

    def _replay(self, subscription: EventInbox, last_id: str | None) -> bool:
        """Put the buffered events after `last_id` into the inbox. Returns whether none are missing."""
        if last_id is None:
            return True
        name, _, number = last_id.partition("-")
        if name != self.name or not number.isdecimal() or len(number) > 18:
            return False
        wanted = int(number) + 1
        for event in self._last:
            if event.number >= wanted:
                subscription.put(event)
        oldest = self._last[0].number if self._last else self._number + 1
        return wanted >= oldest

    def _begin(self) -> None:
        """Start listening."""
        # Events without a listening client have no number. Skipping one number marks them as missed for every client
        # that reconnects with an earlier id, even if others listen already.
        self._number += 1
        self._last.clear()
        self._is_ready.clear()
        self._is_watched.clear()
        self._listening = self._tasks.start(self._listen())
        self._watching = self._tasks.start(self._watch())

    async def _listen(self) -> None:
        try:
            await self._follow()
        finally:
            if self._listening is asyncio.current_task():
                self._is_ready.set()

    async def _follow(self) -> None:
        def broker() -> Broker:
            return self._app.sessions.current().broker

        self._is_connected = True
        while True:
            try:
                async with EventStream(broker, connected=self._report_connection) as events:
                    self._is_ready.set()
                    self._report_connection(True)
                    async for event in events:
                        self._publish(event)
            except TaskMQError:
                if self._listening is not asyncio.current_task():
                    # The task was cancelled and could not close its broker channel cleanly.
                    return
                self._is_ready.set()
                self._report_connection(False)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _watch(self) -> None:
        try:
            store = self._app.sessions.current().store
            if store is None:
                return
            events = StoreEvents(store)
            while True:
                try:
                    for event in await events.poll():
                        self._publish(event)
                except TaskMQError:
                    # Pages show that the store is unreachable, and reload once it is back.
                    self._is_watched.set()
                    await asyncio.sleep(_RETRY_SECONDS)
                else:
                    self._is_watched.set()
                    await asyncio.sleep(_POLL_SECONDS)
        finally:
            if self._watching is asyncio.current_task():
                self._is_watched.set()

    def _report_connection(self, is_connected: bool) -> None:  # noqa: FBT001 - called by position
        if is_connected != self._is_connected:
            self._is_connected = is_connected
            self._publish(None, is_connected=is_connected)

    def _publish(self, event: Event | None, *, is_connected: bool = True) -> None:
        self._number += 1
        numbered = HubEvent(self._number, event, is_connected)
        self._last.append(numbered)
        if event is not None:
            for counter in self._counters.values():
                counter.put(self._number, event)
        for subscription in self._subscriptions:
            if event is None or subscription.counter is None:
                subscription.put(numbered)
