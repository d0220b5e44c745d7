"""An app on `memory://` whose broker and state fail as configured, with one journal of both."""

import asyncio
import enum
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from typing import cast

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import (
    Broker,
    BrokerOptions,
    Browser,
    Consumer,
    Delivery,
    HeaderValue,
    Outgoing,
    QueueStats,
    Subscription,
)
from taskmq.contracts.stores import (
    CheckpointStore,
    ClaimStore,
    Coordinator,
    DelayStore,
    LimitStore,
    ProgressStore,
    ResultRecord,
    ResultStore,
    RevocationStore,
    ScheduleStore,
    StartStore,
    State,
)
from taskmq.errors import BrokerUnavailable, StateUnavailable
from taskmq.middleware.chain import Middleware
from taskmq.model.envelope import JSON
from taskmq.model.topology import ReportQueue, WorkQueue
from taskmq.testing import Acked, Confirmed, FakeClock, FlakyBroker, Requeued
from taskmq.testing.broker_suite.case import peek
from taskmq_local import forget_memory, open_memory_broker, open_memory_state
from tests.unit.app_kit import use_session
from tests.unit.worker.staged_limits import StagedLimits
from tests.unit.worker.staged_schedules import StagedSchedules


class Fault(enum.Enum):
    """The effect and the answer of a call to the broker or the state."""

    NONE = enum.auto()
    REFUSED = enum.auto()  # it fails without an effect
    UNKNOWN = enum.auto()  # it fails after its effect
    HANGS = enum.auto()  # no effect, and no answer before the deadline, if there is one


class Bug(Exception):
    """An error outside every contract."""


@dataclass(slots=True)
class Points:
    """Numbered calls to the outside world: the points at which faults are injected.

    Attributes:
        plan: the faults of the first calls.
        rest: the fault of every later call.
        bugs: number of next calls of a name that raise an error outside the contract.
        refused: names of calls that are refused while they are listed.
        names: the calls so far.
    """

    plan: list[Fault] = field(default_factory=list[Fault])
    rest: Fault = Fault.NONE
    bugs: dict[str, int] = field(default_factory=dict[str, int])
    refused: set[str] = field(default_factory=set[str])
    names: list[str] = field(default_factory=list[str])

    def meet(self, name: str) -> Fault:
        number = len(self.names)
        self.names.append(name)
        if self.bugs.get(name, 0) > 0:
            self.bugs[name] -= 1
            raise Bug(f"{name} is broken (staged)")
        if name in self.refused:
            return Fault.REFUSED
        return self.plan[number] if number < len(self.plan) else self.rest


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored result record."""

    record: ResultRecord


class _StagedBroker:
    """A `FlakyBroker` with faults at numbered calls; no publish ends in the loop iteration in which it began."""

    def __init__(self, inner: FlakyBroker, points: Points) -> None:
        self._inner = inner
        self._points = points

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def max_message_bytes(self) -> int:
        return self._inner.max_message_bytes

    async def connect(self, *, timeout: float) -> None:
        error = BrokerUnavailable("no broker (staged)")
        try:
            async with asyncio.timeout(timeout):
                await _meet(self._points.meet("connect"), error, lambda: self._inner.connect(timeout=timeout))
        except TimeoutError:
            raise error from None

    async def declare(self, queues: Iterable[WorkQueue]) -> None:
        error = BrokerUnavailable("no broker (staged)")
        await _meet(self._points.meet("declare"), error, lambda: self._inner.declare(queues))

    async def declare_reports(self, queues: Iterable[ReportQueue]) -> None:
        await self._inner.declare_reports(queues)

    def publish(self, message: Outgoing, *, timeout: float) -> asyncio.Future[None]:
        fault = self._points.meet("publish")
        if fault is Fault.REFUSED:
            self._inner.fail_publishes(1, BrokerUnavailable("no broker (staged)"))
        elif fault is Fault.UNKNOWN:
            self._inner.lose_confirms(1)
        elif fault is Fault.HANGS:
            self._inner.hang_publishes()
        inner = self._inner.publish(message, timeout=timeout)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(_: asyncio.Future[None]) -> None:
            if fault is Fault.HANGS:
                self._inner.release_publishes()
            if answer.done():
                inner.exception()
            elif (error := inner.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        inner.add_done_callback(finish)
        return answer

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        return _StagedConsumer(await self._inner.consume(subscriptions, deliver))

    def browse(self, queue: str) -> AbstractAsyncContextManager[Browser]:
        return self._inner.browse(queue)

    async def purge(self, queue: str) -> int:
        return await self._inner.purge(queue)

    async def stats(self, queues: Iterable[str]) -> list[QueueStats]:
        return await self._inner.stats(queues)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _StagedConsumer:
    """A consumer that stops slowly and delivers in the meantime, as over a network."""

    def __init__(self, inner: Consumer) -> None:
        self._inner = inner

    async def resize(self, queue: str, prefetch: int) -> None:
        await self._inner.resize(queue, prefetch)

    async def pause(self, queue: str) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        await self._inner.pause(queue)

    async def resume(self, queue: str) -> None:
        await self._inner.resume(queue)

    @property
    def healthy(self) -> bool:
        return self._inner.healthy

    async def stop(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        await self._inner.stop()


class _StagedResults:
    def __init__(self, inner: ResultStore, points: Points, journal: list[object]) -> None:
        self._inner = inner
        self._points = points
        self._journal = journal

    async def put(self, record: ResultRecord, *, ttl: float) -> None:
        async def store() -> None:
            await self._inner.put(record, ttl=ttl)
            self._journal.append(Stored(record))

        await _meet(self._points.meet("put"), StateUnavailable("no state (staged)"), store)

    async def get(self, job_id: str) -> ResultRecord | None:
        return await self._inner.get(job_id)

    async def wait(self, job_id: str, *, timeout: float | None) -> ResultRecord | None:
        return await self._inner.wait(job_id, timeout=timeout)

    async def has_expired(self, job_id: str) -> bool:
        return await self._inner.has_expired(job_id)


class _StagedStarts:
    def __init__(self, inner: StartStore, points: Points) -> None:
        self._inner = inner
        self._points = points

    async def begin(self, job_id: str, *, ttl: float) -> int:
        count = 0

        async def begin() -> None:
            nonlocal count
            count = await self._inner.begin(job_id, ttl=ttl)

        await _meet(self._points.meet("begin"), StateUnavailable("no state (staged)"), begin)
        return count

    async def end(self, job_id: str) -> None:
        await _meet(self._points.meet("end"), StateUnavailable("no state (staged)"), lambda: self._inner.end(job_id))


class _StagedState:
    def __init__(self, inner: State, points: Points, journal: list[object]) -> None:
        self._inner = inner
        self._results = _StagedResults(inner.results, points, journal)
        self._starts = _StagedStarts(inner.starts, points)
        self._schedules = StagedSchedules(inner.schedules, points)
        self._limits = StagedLimits(inner.limits)

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def results(self) -> ResultStore:
        return self._results

    @property
    def starts(self) -> StartStore:
        return self._starts

    @property
    def delays(self) -> DelayStore:
        return self._inner.delays

    @property
    def revocations(self) -> RevocationStore:
        return self._inner.revocations

    @property
    def schedules(self) -> ScheduleStore:
        return self._schedules

    @property
    def limits(self) -> LimitStore:
        return self._limits

    @property
    def leases(self) -> Coordinator:
        return self._inner.leases

    @property
    def claims(self) -> ClaimStore:
        return self._inner.claims

    @property
    def progress(self) -> ProgressStore:
        return self._inner.progress

    @property
    def checkpoints(self) -> CheckpointStore:
        return self._inner.checkpoints

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _meet(fault: Fault, error: Exception, effect: Callable[[], Awaitable[None]]) -> None:
    """Carry out `effect` or not, one loop iteration later, and answer as the fault requires."""
    if fault is Fault.HANGS:
        await asyncio.get_running_loop().create_future()
    await asyncio.sleep(0)
    if fault is Fault.REFUSED:
        raise error
    await effect()
    if fault is Fault.UNKNOWN:
        raise error


class StagedApp(TaskMQ):
    """An app with one session, whose broker and state have the faults of `points`.

    Attributes:
        flaky: the broker, for its own faults.
        journal: published, confirmed, stored and settled, in order.
    """

    def __init__(
        self,
        *,
        memory: str,
        with_state: bool = True,
        clock: FakeClock | None = None,
        middleware: Iterable[Middleware] = (),
        points: Points | None = None,
        name: str = "staged",
        queues: Iterable[WorkQueue] = (),
    ) -> None:
        # A URL without a state; nothing ever connects to it.
        url = f"memory://{memory}" if with_state else "amqp://staged"
        self.fake_clock = clock or FakeClock()
        super().__init__(url, clock=self.fake_clock, middleware=tuple(middleware), name=name, queues=queues)
        self.points = points or Points()
        self._memory = f"memory://{memory}"
        self._memory_name = memory
        self._with_state = with_state
        self._staged: Session | None = None
        use_session(self, self._session)

    @property
    def flaky(self) -> FlakyBroker:
        self._session()
        return self._flaky

    @property
    def journal(self) -> list[object]:
        return cast("list[object]", self.flaky.journal)

    def _session(self) -> Session:
        if self._staged is None:
            options = BrokerOptions(name=self.name, clock=self.fake_clock)
            self._flaky = FlakyBroker(open_memory_broker(self._memory, options))
            journal = cast("list[object]", self._flaky.journal)
            state = open_memory_state(self._memory, options) if self._with_state else None
            staged_state = None if state is None else _StagedState(state, self.points, journal)
            broker: Broker = _StagedBroker(self._flaky, self.points)
            self._staged = Session(broker, staged_state, send_timeout=10)
        return self._staged

    def twin(self, clock: FakeClock | None = None) -> "StagedApp":
        """Build another app on the same broker and state, as in another process."""
        return StagedApp(
            memory=self._memory_name,
            with_state=self._with_state,
            clock=clock or self.fake_clock,
            middleware=self.producer.middleware,
            name=self.name,
        )

    def story(self) -> list[str]:
        """Return the journal in words: "confirmed work.dlq", "stored failed", "acked work"..."""
        words: list[str] = []
        for entry in self.journal:
            match entry:
                case Confirmed(message):
                    words.append(f"confirmed {message.queue}")
                case Stored(record):
                    words.append(f"stored {record.state}")
                case Acked(queue=queue):
                    words.append(f"acked {queue}")
                case Requeued(queue=queue):
                    words.append(f"requeued {queue}")
                case _:
                    pass
        return words

    async def put(
        self,
        body: bytes,
        *,
        queue: str = "work",
        job_id: str = "job-1",
        task: str = "job",
        content_type: str = JSON,
        headers: Mapping[str, HeaderValue] | None = None,
    ) -> None:
        """Publish a raw body, bypassing the faults and the journal."""
        broker = open_memory_broker(self._memory, BrokerOptions(clock=self.fake_clock))
        await broker.declare([WorkQueue(name) for name in {queue.partition(".")[0]}])
        await broker.publish(
            Outgoing(
                queue=queue, body=body, content_type=content_type, job_id=job_id, task=task, headers=headers or {}
            ),
            timeout=5,
        )
        await broker.aclose()

    async def messages(self, queue: str) -> list[Delivery]:
        """Return the ready messages of a queue without removing them."""
        broker = open_memory_broker(self._memory, BrokerOptions(clock=self.fake_clock))
        async with peek(broker, queue, limit=1000) as held:
            found = list(held)
        await broker.aclose()
        return found

    async def stats(self, queue: str) -> QueueStats:
        broker = open_memory_broker(self._memory, BrokerOptions(clock=self.fake_clock))
        (stats,) = await broker.stats([queue])
        await broker.aclose()
        return stats

    async def record(self, job_id: str = "job-1") -> ResultRecord | None:
        state = open_memory_state(self._memory, BrokerOptions(clock=self.fake_clock))
        return await state.results.get(job_id)


@contextmanager
def open_staged(
    *, with_state: bool = True, middleware: Iterable[Middleware] = (), queues: Iterable[WorkQueue] = ()
) -> Iterator[StagedApp]:
    """Build an app on a separate memory."""
    memory = uuid.uuid4().hex
    yield StagedApp(memory=memory, with_state=with_state, middleware=middleware, queues=queues)
    forget_memory(memory)


class FakeDelivery:
    """A delivery without a broker."""

    def __init__(
        self,
        body: bytes,
        *,
        content_type: str | None = JSON,
        queue: str = "work",
        message_id: str | None = "job-1",
        redelivered: bool = False,
        headers: Mapping[str, object] | None = None,
    ) -> None:
        self.body = body
        self.content_type = content_type
        self.queue = queue
        self.message_id = message_id
        self.task: str | None = None
        self.redelivered = redelivered
        self.headers: Mapping[str, object] = headers or {}
        self.settled: str | None = None

    def ack(self) -> None:
        self.settled = self.settled or "acked"

    async def ack_confirmed(self) -> bool:
        if self.settled is not None:
            return False
        self.ack()
        return True

    def requeue(self) -> None:
        self.settled = self.settled or "requeued"


async def settle_loop() -> None:
    """Run everything that needs no time."""
    for _ in range(30):
        await asyncio.sleep(0)
