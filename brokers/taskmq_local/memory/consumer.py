"""Consuming from `memory://`: hands that hold deliveries, and running subscriptions."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from taskmq.contracts.broker import Delivery, Subscription
from taskmq.errors import QueueMissing
from taskmq_local.broker.delivery import deliver_all
from taskmq_local.database.loop_wakeup import LoopWakeup
from taskmq_local.memory.data import MemoryData, MemoryMessage

__all__ = ["MemoryBrowser", "MemoryConsumer", "MemoryDelivery", "MemoryHand"]


class MemoryHand:
    """What one subscription, or one `hold`, has taken and not settled yet."""

    def __init__(self, data: MemoryData, count_void: Callable[[], None]) -> None:
        self._data = data
        self._count_void = count_void
        self._held: dict[int, MemoryMessage] = {}

    def __len__(self) -> int:
        return len(self._held)

    def pick_up(self, messages: list[MemoryMessage]) -> None:
        self._held.update((message.place, message) for message in messages)

    def ack(self, message: MemoryMessage) -> bool:
        """Whether it was there to be acknowledged."""
        is_removed = self._held.pop(message.place, None) is not None and self._data.remove(message)
        if not is_removed:
            self._count_void()
        return is_removed

    def requeue(self, message: MemoryMessage) -> None:
        if self._held.pop(message.place, None) is None:
            self._count_void()
        else:
            self._data.give_back([message])

    def give_back_all(self) -> None:
        held, self._held = self._held, {}
        self._data.give_back(list(held.values()))


class MemoryBrowser:
    """A `taskmq.contracts.broker.Browser`."""

    def __init__(self, data: MemoryData, hand: MemoryHand, queue: str) -> None:
        self._data = data
        self._hand = hand
        self._queue = queue

    async def take(self, count: int) -> list[Delivery]:
        """See `taskmq.contracts.broker.Browser`."""
        messages = self._data.take(self._queue, count, self._hand)
        self._hand.pick_up(messages)
        return [MemoryDelivery(self._hand, message) for message in messages]


class MemoryDelivery:
    """A message of `memory://` in the hands of one consumer."""

    __slots__ = ("_hand", "_message", "_redelivered", "_settled", "_then")

    def __init__(self, hand: MemoryHand, message: MemoryMessage, then: Callable[[], None] | None = None) -> None:
        self._hand = hand
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
        is_removed = self._hand.ack(self._message)
        if self._then is not None:
            self._then()
        return is_removed

    def requeue(self) -> None:
        if not self._settled:
            self._settled = True
            self._hand.requeue(self._message)
            if self._then is not None:
                self._then()


class MemoryConsumer:
    """Running subscriptions of one `consume`."""

    def __init__(
        self,
        data: MemoryData,
        subscriptions: Iterable[Subscription],
        deliver: Callable[[Delivery], None],
        *,
        count_void: Callable[[], None],
    ) -> None:
        self._lines = [
            _Line(data, MemoryHand(data, count_void), subscription, deliver) for subscription in subscriptions
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
        """Stop, and give back what is in hand."""
        for line in self._lines:
            line.stop()
            line.hand.give_back_all()


class _Line:
    """One subscription: keeps its hand filled up to the prefetch."""

    def __init__(
        self, data: MemoryData, hand: MemoryHand, subscription: Subscription, deliver: Callable[[Delivery], None]
    ) -> None:
        self.hand = hand
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
        self._data.let_go(self._subscription.queue, self.hand)

    def _fill(self) -> None:
        free = self._subscription.prefetch - len(self.hand)
        if not self._running or free <= 0:
            return
        try:
            messages, is_more = self._data.take_share(self._subscription.queue, free, self.hand)
        except QueueMissing:
            return
        self.hand.pick_up(messages)
        if is_more and len(messages) < free:
            self._wakeup.fire()
        deliver_all([MemoryDelivery(self.hand, message, self._wakeup.fire) for message in messages], self._deliver)
