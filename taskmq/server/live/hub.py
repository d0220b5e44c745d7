"""The server's one subscription to events, its looks at the store, and who of its callers gets what they have."""

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

__all__ = ["EventHub", "EventInbox", "HubEvent", "kind_of"]

_REMEMBERED: Final = 1_000
_BUFFER: Final = 1_000
_STREAMS: Final = 3_072
_AGAIN: Final = 5.0
_LOOK: Final = 1.0


class HubEvent(NamedTuple):
    """An event as this server numbers it.

    Attributes:
        event: None: the broker was lost, or is back.
    """

    number: int
    event: Event | None
    is_connected: bool = True


class EventCounter:
    """How many events of each kind there were that fit: counted once, for all streams that want the same.

    Attributes:
        counts: since the first of these streams began.
        number: of the last event that was counted.
        readers: streams that read it.
    """

    def __init__(self, fits: Callable[[Event], bool]) -> None:
        self.counts: Counter[str] = Counter()
        self.number: int = 0
        self.readers: int = 0
        self._fits = fits
        self._waiting: set[asyncio.Event] = set()

    def put(self, number: int, event: Event) -> None:
        """Count the event, where it fits."""
        if self._fits(event):
            self.counts[kind_of(event)] += 1
            self.number = number
            for changed in self._waiting:
                changed.set()
            self._waiting.clear()

    def wake(self, changed: asyncio.Event) -> None:
        """Set this, once, when the next event is counted."""
        self._waiting.add(changed)

    def leave(self, changed: asyncio.Event) -> None:
        """Set it no more."""
        self._waiting.discard(changed)


class EventInbox:
    """What waits for one stream: at most 1,000 events; or how many there were of each kind, however many.

    Args:
        counter: counts the events instead; that the broker was lost or is back is kept here all the same.

    Attributes:
        missed: events that were dropped since the last were taken.
        is_over: nothing will come any more.
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
        """The number of the last event that was put or counted."""
        return self._number if self.counter is None else max(self._number, self.counter.number)

    def put(self, event: HubEvent) -> None:
        """Keep it for the stream, where the stream wants it."""
        if event.event is not None and not self._fits(event.event):
            return
        self._number = event.number
        self._changed.set()
        if self.counter is not None and event.event is not None:
            # From before the stream came: the counter had it then, or never.
            self._seen[kind_of(event.event)] -= 1
            return
        if len(self._waiting) >= _BUFFER:
            self._waiting.popleft()
            self.missed += 1
        self._waiting.append(event)

    def end(self) -> None:
        """Nothing comes any more."""
        self.is_over = True
        self._ended.set()
        self._changed.set()

    async def take(self, timeout: float) -> list[HubEvent]:
        """What was kept; empty where nothing has come within so many seconds, or was counted, or all is over."""
        if not self._waiting and not self._has_counted() and not self.is_over:
            await self._change(timeout)
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def counted(self) -> Counter[str]:
        """How many events of each kind there were since the last call."""
        if self.counter is None:
            return Counter()
        found = self.counter.counts - self._seen
        self._seen = self.counter.counts.copy()
        return found

    async def pause(self, seconds: float) -> None:
        """Return after so many seconds, or once all is over; what comes meanwhile waits."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _has_counted(self) -> bool:
        return self.counter is not None and self.counter.counts != self._seen

    async def _change(self, timeout: float) -> None:
        """Return once something has come, or all is over, or the time is."""
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
                self.counter.leave(self._changed)


def kind_of(event: Event) -> str:
    """The kind of a stream's message about the event."""
    return "job" if isinstance(event, JobEvent) else "worker"


class EventHub:
    """Listens while a client does.

    Where all streams are taken, a tenant that has fewer of them gets one of the tenant that has most.

    Args:
        most: so many streams may be open.

    Attributes:
        name: of this run of this server; event ids begin with it.
    """

    def __init__(self, app: TaskMQ, *, most: int = _STREAMS) -> None:
        self.name: str = secrets.token_hex(4)
        self._app = app
        self._most = most
        # With the tenant of each, in the order in which they came.
        self._subscriptions: dict[EventInbox, str] = {}
        # Of streams that want to know how many, by what they want to know of.
        self._counters: dict[Callable[[Event], bool], EventCounter] = {}
        self._users: Counter[str] = Counter()
        self._last: deque[HubEvent] = deque(maxlen=_REMEMBERED)
        # The first event is number 1.
        self._number = -1
        self._tasks = TaskSet("server events", failure="the server follows no events any more")
        self._listening: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        # Set once the broker is heard, or was found to be away.
        self._settled = asyncio.Event()
        # Set once the store was looked at.
        self._is_watched = asyncio.Event()
        self._is_connected = True
        self._is_closed = False

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._subscriptions)

    def streams_of(self, user: str) -> int:
        """How many streams the user has open."""
        return self._users[user]

    def has_room(self, tenant: str) -> bool:
        """Whether a tenant may have one more stream: there is room, or a tenant that has more gives one up."""
        if len(self._subscriptions) < self._most:
            return True
        counts = self._open_of_tenants()
        return counts.total() < self._most or counts[tenant] + 1 < max(counts.values())

    @asynccontextmanager
    async def subscribed(
        self,
        user: str,
        fits: Callable[[Event], bool],
        *,
        tenant: str = "",
        last_id: str | None = None,
        is_counting: bool = False,
    ) -> AsyncGenerator[tuple[EventInbox, bool]]:
        """A subscription while the block runs, and whether events may be missing between `last_id` and its first.

        Args:
            tenant: whose stream it is; "": of the instance.
            fits: streams that count by equal ones share what is counted.
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
                # They take a while to go: who comes meanwhile needs others. `_tasks` sees them end.
                for task in (self._listening, self._watching):
                    if task is not None:
                        task.cancel()
                self._listening = self._watching = None

    async def settled(self) -> None:
        """Return once broker and store are heard, or the subscriptions know that one is away, or all is over."""
        for known in (self._settled, self._is_watched):
            if not self._is_closed:
                await known.wait()

    def close(self) -> None:
        """End all streams, and those that come; the server stops."""
        self._is_closed = True
        self._settled.set()
        self._is_watched.set()
        for subscription in self._subscriptions:
            subscription.end()

    async def aclose(self) -> None:
        """Let the broker go."""
        self.close()
        await self._tasks.aclose()

    def _open_of_tenants(self) -> Counter[str]:
        """Count the streams of each tenant, without those that are about to end."""
        return Counter(tenant for inbox, tenant in self._subscriptions.items() if not inbox.is_over)

    def _make_room(self) -> None:
        """End the last stream of the tenant that has most, where there is no room for one more."""
        if len(self._subscriptions) < self._most or (counts := self._open_of_tenants()).total() < self._most:
            return
        ((largest, _),) = counts.most_common(1)
        theirs = (inbox for inbox, tenant in reversed(self._subscriptions.items()) if tenant == largest)
        next(inbox for inbox in theirs if not inbox.is_over).end()

    def _replay(self, subscription: EventInbox, last_id: str | None) -> bool:
        """Give what came after that event; whether nothing is missing."""
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
        """Listen from now on."""
        # What happened while no client listened has no number. One is left out for it: who comes back with an earlier
        # one has missed something, also when others listen already.
        self._number += 1
        self._last.clear()
        self._settled.clear()
        self._is_watched.clear()
        self._listening = self._tasks.start(self._listen())
        self._watching = self._tasks.start(self._watch())

    async def _listen(self) -> None:
        try:
            await self._follow()
        finally:
            if self._listening is asyncio.current_task():
                self._settled.set()

    async def _follow(self) -> None:
        def broker() -> Broker:
            return self._app.sessions.current().broker

        self._is_connected = True
        while True:
            try:
                async with EventStream(broker, connected=self._tell_connection) as events:
                    self._settled.set()
                    self._tell_connection(True)
                    async for event in events:
                        self._tell(event)
            except TaskMQError:
                if self._listening is not asyncio.current_task():
                    # It was cancelled, and could not leave the broker in order.
                    return
                self._settled.set()
                self._tell_connection(False)
                await asyncio.sleep(_AGAIN)

    async def _watch(self) -> None:
        try:
            store = self._app.sessions.current().store
            if store is None:
                return
            events = StoreEvents(store)
            while True:
                try:
                    for event in await events.look():
                        self._tell(event)
                except TaskMQError:
                    # Pages say that it is away; what was done meanwhile they read when it is back.
                    self._is_watched.set()
                    await asyncio.sleep(_AGAIN)
                else:
                    self._is_watched.set()
                    await asyncio.sleep(_LOOK)
        finally:
            if self._watching is asyncio.current_task():
                self._is_watched.set()

    def _tell_connection(self, is_connected: bool) -> None:  # noqa: FBT001 - called by position
        if is_connected != self._is_connected:
            self._is_connected = is_connected
            self._tell(None, is_connected=is_connected)

    def _tell(self, event: Event | None, *, is_connected: bool = True) -> None:
        self._number += 1
        told = HubEvent(self._number, event, is_connected)
        self._last.append(told)
        if event is not None:
            for counter in self._counters.values():
                counter.put(self._number, event)
        for subscription in self._subscriptions:
            if event is None or subscription.counter is None:
                subscription.put(told)
