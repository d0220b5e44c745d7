"""A broker wrapper that injects faults on demand and records a journal of events.

Without a fault it is transparent: the broker suite passes through it. Faults are counted and used up one by one, so a
test determines exactly which publish or settle fails. Tests assert on the `journal`:

    broker = FlakyBroker(open_broker("memory://test", BrokerOptions()))
    broker.lose_confirms(1)
    ...
    assert broker.kinds() == ["Published", "Failed", "Requeued"]
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from taskmq.contracts.broker import Broker, Browser, Consumer, Delivery, Outgoing, QueueStats, Subscription
from taskmq.errors import BrokerBlocked, PublishUnknown, SendError, TaskMQError
from taskmq.model.topology import ReportQueue, WorkQueue

FlakyCall = Literal["connect", "declare", "consume", "browse", "purge", "stats"]


@dataclass(frozen=True, slots=True)
class Published:
    """`publish` was called with this message."""

    message: Outgoing


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The caller of `publish` knows that the message is durable."""

    message: Outgoing


@dataclass(frozen=True, slots=True)
class Failed:
    """The caller of `publish` got an error."""

    message: Outgoing
    error: BaseException


@dataclass(frozen=True, slots=True)
class Acked:
    """`ack` was the first settle of a delivery; `dropped` if it never reached the broker."""

    queue: str
    message_id: str | None
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Requeued:
    """`requeue` was the first settle of a delivery; `dropped` if it never reached the broker."""

    queue: str
    message_id: str | None
    dropped: bool = False


JournalEntry = Published | Confirmed | Failed | Acked | Requeued


@dataclass(frozen=True, slots=True)
class _Fault:
    error: SendError
    is_published: bool


class FlakyBroker:
    """A `taskmq.contracts.broker.Broker` around another one, which fails, hangs and loses on demand.

    Attributes:
        journal: what was published and settled through this object, in order.
        void: settles that came too late because their deliveries had been lost.
    """

    def __init__(self, inner: Broker) -> None:
        self.journal: list[JournalEntry] = []
        self.void = 0
        self._inner = inner
        self._faults: deque[_Fault] = deque()
        self._call_faults: dict[FlakyCall, deque[TaskMQError]] = {}
        self._hanging: list[Callable[[], None]] | None = None
        self._drops = 0
        self._in_hand: list[_FlakyDelivery] = []

    def fail_publishes(self, count: int, error: SendError) -> None:
        """Let the next `count` publishes raise `error`; their messages never reach the broker."""
        self._faults.extend([_Fault(error, is_published=False)] * count)

    def lose_confirms(self, count: int, error: SendError | None = None) -> None:
        """Publish the next `count` messages, but raise `error`, by default `PublishUnknown`."""
        unknown = error or PublishUnknown("the confirm was lost (FlakyBroker)")
        self._faults.extend([_Fault(unknown, is_published=True)] * count)

    def hang_publishes(self) -> None:
        """Let publishes wait for `release_publishes`; at their deadline they raise `BrokerBlocked`."""
        if self._hanging is None:
            self._hanging = []

    def release_publishes(self) -> None:
        """Send the waiting publishes in order, and stop delaying further ones."""
        waiting, self._hanging = self._hanging or [], None
        for go_on in waiting:
            go_on()

    @property
    def hanging(self) -> int:
        """Number of waiting publishes."""
        return len(self._hanging or [])

    def drop_settles(self, count: int) -> None:
        """Drop the next `count` settles: the broker still considers the messages unsettled."""
        self._drops += count

    def lose_deliveries(self) -> int:
        """Lose the consumer's channel: unsettled deliveries are requeued, and settling them has no effect.

        Return their number.
        """
        lost, self._in_hand = self._in_hand, []
        for delivery in lost:
            delivery.lose()
        return len(lost)

    def fail_calls(self, name: FlakyCall, count: int, error: TaskMQError) -> None:
        """Let the next `count` calls of the method `name` raise `error` and do nothing."""
        self._call_faults.setdefault(name, deque()).extend([error] * count)

    def kinds(self) -> list[str]:
        """Return the names of the journal's entries: "Published", "Confirmed", "Acked"..."""
        return [type(entry).__name__ for entry in self.journal]

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def max_message_bytes(self) -> int:
        return self._inner.max_message_bytes

    async def connect(self, *, timeout: float) -> None:
        self._meet_fault("connect")
        await self._inner.connect(timeout=timeout)

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        self._meet_fault("declare")
        await self._inner.declare(queues)

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        self._meet_fault("declare")
        await self._inner.declare_reports(queues)

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        self.journal.append(Published(message))
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        fault = self._faults.popleft() if self._faults else None
        if fault is not None and not fault.is_published:
            self._fail(answer, message, fault.error)
        elif self._hanging is not None:
            self._hang(answer, message, fault, deadline=loop.time() + timeout)
        else:
            self._pass_on(answer, message, fault, timeout=timeout)
        return answer

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        self._meet_fault("consume")
        return await self._inner.consume(subscriptions, lambda delivery: deliver(self._wrap(delivery)))

    @asynccontextmanager
    async def browse(self, queue: str) -> AsyncGenerator[Browser, None]:
        self._meet_fault("browse")
        async with self._inner.browse(queue) as browser:
            yield _FlakyBrowser(browser, self._wrap)

    async def purge(self, queue: str) -> int:
        self._meet_fault("purge")
        return await self._inner.purge(queue)

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        self._meet_fault("stats")
        return await self._inner.stats(queues)

    async def aclose(self) -> None:
        self.release_publishes()
        await self._inner.aclose()

    def _hang(
        self, answer: asyncio.Future[None], message: Outgoing, fault: _Fault | None, *, deadline: float
    ) -> None:
        loop = asyncio.get_running_loop()
        hanging = self._hanging
        assert hanging is not None

        def give_up() -> None:
            if go_on in hanging:
                hanging.remove(go_on)
                self._fail(answer, message, BrokerBlocked("the broker takes no messages (FlakyBroker)"))

        def go_on() -> None:
            timer.cancel()
            self._pass_on(answer, message, fault, timeout=max(0.0, deadline - loop.time()))

        timer = loop.call_at(deadline, give_up)
        hanging.append(go_on)

    def _pass_on(
        self, answer: asyncio.Future[None], message: Outgoing, fault: _Fault | None, *, timeout: float
    ) -> None:
        def finish(inner: asyncio.Future[None]) -> None:
            if inner.cancelled():
                answer.cancel()
            elif (error := inner.exception()) is not None:
                self._fail(answer, message, error)
            elif fault is not None:
                self._fail(answer, message, fault.error)
            elif not answer.done():
                self.journal.append(Confirmed(message))
                answer.set_result(None)

        inner = self._inner.publish(message, timeout=timeout)
        # Set at once if the inner future is done already.
        if inner.done():
            finish(inner)
        else:
            inner.add_done_callback(finish)

    def _fail(self, answer: asyncio.Future[None], message: Outgoing, error: BaseException) -> None:
        if not answer.done():
            self.journal.append(Failed(message, error))
            answer.set_exception(error)

    def _meet_fault(self, name: FlakyCall) -> None:
        if faults := self._call_faults.get(name):
            raise faults.popleft()

    def _wrap(self, delivery: Delivery) -> "_FlakyDelivery":
        wrapped = _FlakyDelivery(delivery, self._settle)
        self._in_hand.append(wrapped)
        return wrapped

    def _settle(self, delivery: "_FlakyDelivery", kind: type[Acked | Requeued]) -> bool:
        """Record a settle; return whether it may reach the broker."""
        if delivery not in self._in_hand:
            self.void += 1
            return False
        self._in_hand.remove(delivery)
        is_dropped = self._drops > 0
        self._drops -= is_dropped
        self.journal.append(kind(delivery.queue, delivery.message_id, is_dropped))
        return not is_dropped


class _FlakyBrowser:
    def __init__(self, inner: Browser, wrap: Callable[[Delivery], "_FlakyDelivery"]) -> None:
        self._inner = inner
        self._wrap = wrap

    async def take(self, count: int) -> list[Delivery]:
        return [self._wrap(delivery) for delivery in await self._inner.take(count)]


class _FlakyDelivery:
    """A delivery that records and filters its settling."""

    def __init__(
        self, inner: Delivery, may_settle: Callable[["_FlakyDelivery", type[Acked | Requeued]], bool]
    ) -> None:
        self._inner = inner
        self._may_settle = may_settle
        self._is_settled = False

    @property
    def body(self) -> bytes:
        return self._inner.body

    @property
    def content_type(self) -> str | None:
        return self._inner.content_type

    @property
    def queue(self) -> str:
        return self._inner.queue

    @property
    def message_id(self) -> str | None:
        return self._inner.message_id

    @property
    def task(self) -> str | None:
        return self._inner.task

    @property
    def redelivered(self) -> bool:
        return self._inner.redelivered

    @property
    def headers(self) -> Mapping[str, object]:
        return self._inner.headers

    def ack(self) -> None:
        if self._first(Acked):
            self._inner.ack()

    async def ack_confirmed(self) -> bool:
        return self._first(Acked) and await self._inner.ack_confirmed()

    def requeue(self) -> None:
        if self._first(Requeued):
            self._inner.requeue()

    def lose(self) -> None:
        self._inner.requeue()

    def _first(self, kind: type[Acked | Requeued]) -> bool:
        if self._is_settled:
            return False
        self._is_settled = True
        return self._may_settle(self, kind)
