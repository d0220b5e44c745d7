"""Consumers of `memory://`: unsettled deliveries, and running subscriptions."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from taskmq.contracts.broker import Delivery, Subscription
from taskmq.errors import QueueMissing
from taskmq_local.broker.delivery import deliver_all
from taskmq_local.database.loop_wakeup import LoopWakeup
from taskmq_local.memory.data import MemoryData, MemoryMessage


class UnsettledMessages:
    """Messages that one subscription or browser has taken but not settled."""

    def __init__(self, data: MemoryData, count_void: Callable[[], None]) -> None:
        self._data = data
        self._count_void = count_void
        self._held: dict[int, MemoryMessage] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, messages: list[MemoryMessage]) -> None:
        self._held.update((message.place, message) for message in messages)

    def ack(self, message: MemoryMessage) -> bool:
        """Delete the message; return whether it was still unsettled."""
        is_removed = self._held.pop(message.place, None) is not None and self._data.remove(message)
        if not is_removed:
            self._count_void()
        return is_removed

    def requeue(self, message: MemoryMessage) -> None:
        if self._held.pop(message.place, None) is None:
            self._count_void()
        else:
            self._data.give_back([message])

    def requeue_all(self) -> None:
        held, self._held = self._held, {}
        self._data.give_back(list(held.values()))


class MemoryBrowser:
    """A `taskmq.contracts.broker.Browser`."""

    def __init__(self, data: MemoryData, unsettled: UnsettledMessages, queue: str) -> None:
        self._data = data
        self._unsettled = unsettled
        self._queue = queue

    async def take(self, count: int) -> list[Delivery]:
        """See `taskmq.contracts.broker.Browser`."""
        messages = self._data.take(self._queue, count, self._unsettled)
        self._unsettled.add(messages)
        return [MemoryDelivery(self._unsettled, message) for message in messages]


class MemoryDelivery:
    """A delivery of `memory://`."""

    __slots__ = ("_message", "_redelivered", "_settled", "_then", "_unsettled")

    def __init__(
        self, unsettled: UnsettledMessages, message: MemoryMessage, then: Callable[[], None] | None = None
    ) -> None:
        self._unsettled = unsettled
        self._message = message
        self._redelivered = message.deliveries > 0
        self._settled = False
        self._then = then

    def __repr__(self) -> str:
        outgoing = self._message.outgoing
        state = "settled" if self._settled else "unsettled"
        return f"<MemoryDelivery {outgoing.job_id} of {self.queue} {state}>"

    @property
    def body(self) -> bytes:
        return self._message.outgoing.body

    @property
    def content_type(self) -> str | None:
        return self._message.outgoing.content_type

    @property
    def queue(self) -> str:
        return self._message.queue.name

    @property
    def message_id(self) -> str | None:
        return self._message.outgoing.job_id

    @property
    def task(self) -> str | None:
        return self._message.outgoing.task

    @property
    def redelivered(self) -> bool:
        return self._redelivered

    @property
    def headers(self) -> Mapping[str, object]:
        return self._message.outgoing.headers

    def ack(self) -> None:
        self._ack()

    async def ack_confirmed(self) -> bool:
        return self._ack()

    def _ack(self) -> bool:
        if self._settled:
            return False
        self._settled = True
        is_removed = self._unsettled.ack(self._message)
        if self._then is not None:
            self._then()
        return is_removed

    def requeue(self) -> None:
        if not self._settled:
            self._settled = True
            self._unsettled.requeue(self._message)
            if self._then is not None:
                self._then()


class MemoryConsumer:
    """Running subscriptions of one `consume` call."""

    def __init__(
        self,
        data: MemoryData,
        subscriptions: Iterable[Subscription],
        deliver: Callable[[Delivery], None],
        *,
        count_void: Callable[[], None],
    ) -> None:
        self._lines = [
            _Subscription(data, UnsettledMessages(data, count_void), subscription, deliver)
            for subscription in subscriptions
        ]

    @property
    def healthy(self) -> bool:
        return all(line.is_live for line in self._lines)

    def start(self) -> None:
        for line in self._lines:
            if not line.is_paused:
                line.start()

    async def resize(self, queue: str, prefetch: int) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for line in self._lines:
            if line.queue == queue:
                line.resize(prefetch)

    async def pause(self, queue: str) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for line in self._lines:
            if line.queue == queue:
                line.pause()

    async def resume(self, queue: str) -> None:
        """See `taskmq.contracts.broker.Consumer`."""
        for line in self._lines:
            if line.queue == queue:
                line.resume()

    async def stop(self) -> None:
        for line in self._lines:
            line.stop()
        await asyncio.sleep(0)

    def end(self) -> None:
        """Stop, and requeue the unsettled messages."""
        for line in self._lines:
            line.stop()
            line.unsettled.requeue_all()


class _Subscription:
    """A subscription, which keeps its prefetch filled."""

    def __init__(
        self,
        data: MemoryData,
        unsettled: UnsettledMessages,
        subscription: Subscription,
        deliver: Callable[[Delivery], None],
    ) -> None:
        self.unsettled = unsettled
        self._data = data
        self._subscription = subscription
        self._deliver = deliver
        self._wakeup = LoopWakeup(self._fill)
        self._running = self._is_stopped = False
        self.is_paused = subscription.is_paused

    @property
    def queue(self) -> str:
        return self._subscription.queue

    def resize(self, prefetch: int) -> None:
        self._subscription = replace(self._subscription, prefetch=prefetch)
        self._wakeup.fire()

    @property
    def is_live(self) -> bool:
        if self.is_paused:
            return not self._is_stopped
        return self._running and self._data.exists(self._subscription.queue)

    def start(self) -> None:
        self._running = True
        self._data.join(self._subscription.queue, self._wakeup)

    def pause(self) -> None:
        if self._running:
            self.is_paused = True
            self._leave()

    def resume(self) -> None:
        if self.is_paused and not self._is_stopped:
            if not self._data.exists(self._subscription.queue):
                raise QueueMissing(self._subscription.queue)
            self.is_paused = False
            self.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._leave()

    def _leave(self) -> None:
        self._running = False
        self._data.leave(self._subscription.queue, self._wakeup)
        self._data.leave_shard(self._subscription.queue, self.unsettled)

    def _fill(self) -> None:
        free = self._subscription.prefetch - len(self.unsettled)
        if not self._running or free <= 0:
            return
        try:
            messages, is_more = self._data.take_share(self._subscription.queue, free, self.unsettled)
        except QueueMissing:
            return
        self.unsettled.add(messages)
        if is_more and len(messages) < free:
            self._wakeup.fire()
        deliver_all(
            [MemoryDelivery(self.unsettled, message, self._wakeup.fire) for message in messages], self._deliver
        )
