"""`memory://NAME`: a broker in this process, for tests and demonstrations."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager

from taskmq.contracts.broker import BrokerOptions, Browser, Delivery, Outgoing, QueueStats, Subscription
from taskmq.contracts.broker_abilities import ignore_connection
from taskmq.errors import BrokerUnavailable, QueueMissing, SendError, TooLarge, Unroutable
from taskmq.model.topology import ReportQueue, WorkQueue
from taskmq_local.database.loop_wakeup import LoopWakeup
from taskmq_local.memory.consumer import MemoryBrowser, MemoryConsumer, UnsettledMessages
from taskmq_local.memory.data import MemoryData, open_memory_data
from taskmq_local.memory.listener import MemoryListener
from taskmq_local.rules.capacity import MAX_MESSAGE_BYTES, Capacity, queues_of
from taskmq_local.rules.topics import MAX_TOPIC_BYTES


def open_memory_broker(url: str, options: BrokerOptions) -> "MemoryBroker":
    """Return a broker for `memory://NAME`; brokers and states of one name in this process share its data."""
    return MemoryBroker(open_memory_data(url.partition("://")[2]), options)


class MemoryBroker:
    """A `MemoryData`, as used by one event loop.

    Attributes:
        void: number of settlements without effect, because the message had been requeued before.
    """

    def __init__(self, data: MemoryData, options: BrokerOptions) -> None:
        self._data = data
        self._clock = options.clock
        self._declared: dict[str, Capacity] = {}
        self._consumers: list[MemoryConsumer] = []
        self._holds: list[UnsettledMessages] = []
        self._listeners: list[MemoryListener] = []
        self._timekeeper: LoopWakeup | None = None
        self._timer: asyncio.Task[None] | None = None
        self._closed = False
        self.void = 0

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._consumers)} consumers"
        return f"<MemoryBroker {self.address} {state}>"

    @property
    def address(self) -> str:
        return f"memory://{self._data.name}"

    @property
    def max_message_bytes(self) -> int:
        return MAX_MESSAGE_BYTES

    async def connect(self, *, timeout: float) -> None:  # noqa: ARG002 - never waits
        self._check_open()

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        self._check_open()
        found = queues_of(queues)
        self._declared.update(found)
        self._data.declare(found)

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        self._check_open()
        self._data.declare({queue.name: Capacity() for queue in queues})

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:  # noqa: ARG002 - the contract has it
        future = asyncio.get_running_loop().create_future()
        try:
            self._publish(message)
        except SendError as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def publish_many(
        self,
        messages: Sequence[Outgoing],
        *,
        timeout: float,  # noqa: ARG002 - the contract has it
    ) -> asyncio.Future[list[Exception | None]]:
        """See `taskmq.contracts.broker.PublishingMany`."""
        outcomes: list[Exception | None] = []
        for message in messages:
            try:
                self._publish(message)
            except SendError as error:
                outcomes.append(error)
            else:
                outcomes.append(None)
        future: asyncio.Future[list[Exception | None]] = asyncio.get_running_loop().create_future()
        future.set_result(outcomes)
        return future

    async def consume(
        self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]
    ) -> MemoryConsumer:
        self._check_open()
        wanted = list(subscriptions)
        for subscription in wanted:
            if not self._data.exists(subscription.queue):
                raise QueueMissing(subscription.queue)
        self._keep_time()
        consumer = MemoryConsumer(self._data, wanted, deliver, count_void=self._count_void)
        self._consumers.append(consumer)
        consumer.start()
        return consumer

    @asynccontextmanager
    async def browse(self, queue: str) -> AsyncGenerator[Browser, None]:
        self._check_open()
        self._data.promote(self._clock.now_ms())
        unsettled = UnsettledMessages(self._data, self._count_void)
        self._holds.append(unsettled)
        try:
            yield MemoryBrowser(self._data, unsettled, queue)
        finally:
            self._holds.remove(unsettled)
            unsettled.requeue_all()
            self._data.leave_shard(queue, unsettled)

    def announce(self, topic: str, body: bytes) -> bool:
        """See `taskmq.contracts.broker.Broadcasting`."""
        if self._closed or len(topic.encode()) > MAX_TOPIC_BYTES:
            return False
        self._data.announce(topic, body)
        return True

    async def listen(
        self,
        patterns: Collection[str],
        receive: Callable[[str, bytes], None],
        *,
        connected: Callable[[bool], None] = ignore_connection,
    ) -> MemoryListener:
        """See `taskmq.contracts.broker.Broadcasting`; no connection can be lost."""
        del connected
        self._check_open()
        listener = MemoryListener(self._data, patterns, receive)
        self._listeners.append(listener)
        return listener

    async def purge(self, queue: str) -> int:
        """Delete the ready messages, but not the delayed ones."""
        self._check_open()
        self._data.promote(self._clock.now_ms())
        return self._data.purge(queue)

    async def delete(self, queue: str) -> int:
        """Delete a physical queue with its ready messages; return their number."""
        self._check_open()
        self._declared.pop(queue, None)
        return self._data.delete(queue)

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        self._check_open()
        self._data.promote(self._clock.now_ms())
        return self._data.stats(list(queues))

    async def aclose(self) -> None:
        # Everything happens before the first await, so a cancelled close is complete.
        self._closed = True
        if self._timekeeper is not None:
            self._data.unwatch_due(self._timekeeper)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for consumer in self._consumers:
            consumer.end()
        for unsettled in self._holds:
            unsettled.requeue_all()
        for listener in self._listeners:
            listener.end()
        await asyncio.sleep(0)

    def _publish(self, message: Outgoing) -> None:
        self._check_open()
        if len(message.body) > MAX_MESSAGE_BYTES:
            raise TooLarge(len(message.body), MAX_MESSAGE_BYTES, f"the message of {message.task}")
        now = self._clock.now_ms()
        if message.due is not None and message.due > now:
            self._keep_time()
        try:
            self._data.publish(message, now=now)
        except Unroutable:
            if message.queue not in self._declared:
                raise
            self._data.declare({message.queue: self._declared[message.queue]})
            self._data.publish(message, now=now)

    def _keep_time(self) -> None:
        if self._timekeeper is None:
            self._timekeeper = LoopWakeup(self._set_timer)
            self._data.watch_due(self._timekeeper)

    def _set_timer(self) -> None:
        """Promote due messages, and wake again at the next due time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._data.promote(self._clock.now_ms())
        if due is not None and not self._closed:
            self._timer = asyncio.get_running_loop().create_task(self._wake_at(due))

    async def _wake_at(self, due: int) -> None:
        await self._clock.sleep_until(due)
        self._timer = None
        self._set_timer()

    def _count_void(self) -> None:
        self.void += 1

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerUnavailable(f"the broker {self.address} was closed")
