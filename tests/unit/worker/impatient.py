"""Workers on `memory://` in virtual time, with a broker that requeues messages unsettled for too long."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import Broker, BrokerOptions, Consumer, Delivery, Outgoing, Subscription
from taskmq.contracts.stores import Lease, LeaseStore, State
from taskmq.errors import BrokerUnavailable, StateUnavailable
from taskmq.model.topology import WorkQueue
from taskmq.testing import FlakyBroker
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory, open_memory_broker, open_memory_state
from tests.unit.app_kit import use_session

ALLOWED = 120.0
LEASE = 6.0
QUEUE = "work"


class _LoopClock:
    """The loop's time, used as wall-clock time."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep_until(self, instant_ms: int) -> None:
        while (left := instant_ms - self.now_ms()) > 0:
            await asyncio.sleep(left / 1000)


class ImpatientDelivery:
    """A delivery that the broker may requeue."""

    def __init__(self, inner: Delivery) -> None:
        self._inner = inner
        self.settled = False
        self.revoked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def ack(self) -> None:
        self._settle(self._inner.ack)

    async def ack_confirmed(self) -> bool:
        if self.settled or self.revoked:
            return False
        self.settled = True
        return await self._inner.ack_confirmed()

    def requeue(self) -> None:
        self._settle(self._inner.requeue)

    def take_back(self) -> None:
        if not self.settled and not self.revoked:
            self.revoked = True
            self._inner.requeue()

    def _settle(self, settle: Callable[[], None]) -> None:
        if not self.settled and not self.revoked:
            self.settled = True
            settle()


class ImpatientConsumer:
    """A consumer that states its timeout for deliveries."""

    def __init__(self, inner: Consumer) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settle_within(self, queue: str) -> float | None:
        return ALLOWED


class ImpatientBroker(FlakyBroker):
    """A `FlakyBroker` that requeues messages unsettled for `ALLOWED` seconds."""

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        loop = asyncio.get_running_loop()

        def pass_on(inner: Delivery) -> None:
            delivery = ImpatientDelivery(inner)
            loop.call_later(ALLOWED, delivery.take_back)
            deliver(delivery)

        return cast("Consumer", ImpatientConsumer(await super().consume(subscriptions, pass_on)))


class _Broker:
    def __init__(self, inner: Broker, node: "Node") -> None:
        self._inner = inner
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
        if self._node.is_dead or self._node.world.is_broker_down:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(BrokerUnavailable("no broker (staged)"))
            return failed
        return self._inner.publish(message, timeout=timeout)

    async def consume(self, subscriptions: Iterable[Subscription], deliver: Callable[[Delivery], None]) -> Consumer:
        loop = asyncio.get_running_loop()

        def pass_on(inner: Delivery) -> None:
            delivery = ImpatientDelivery(inner)
            if self._node.is_dead:
                delivery.take_back()
                return
            self._node.in_hand.append(delivery)
            loop.call_later(ALLOWED, delivery.take_back)
            deliver(delivery)

        return cast("Consumer", ImpatientConsumer(await self._inner.consume(subscriptions, pass_on)))


class _Leases:
    """Fails while the state is down, every second time after the effect."""

    def __init__(self, inner: LeaseStore, node: "Node") -> None:
        self._inner = inner
        self._node = node

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        self._meet()
        return await self._inner.acquire(key, owner=owner, seconds=seconds, note=note)

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        self._node.world.renewals += 1
        self._meet()
        return await self._inner.renew(key, token=token, seconds=seconds, note=note)

    async def release(self, key: str, *, token: int) -> None:
        self._meet()
        await self._inner.release(key, token=token)

    async def find(self, key: str) -> Lease | None:
        self._meet()
        return await self._inner.find(key)

    def _meet(self) -> None:
        if self._node.is_dead or self._node.world.is_state_down:
            raise StateUnavailable("no state (staged)")


class _State:
    def __init__(self, inner: State, node: "Node") -> None:
        self._inner = inner
        self.leases: LeaseStore = _Leases(inner.leases, node)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _App(TaskMQ):
    def __init__(self, node: "Node") -> None:
        clock = _LoopClock()
        super().__init__(node.world.url, clock=clock, name=node.name)
        options = BrokerOptions(name=node.name, clock=clock)
        broker = cast("Broker", _Broker(open_memory_broker(node.world.url, options), node))
        state = cast("State", _State(open_memory_state(node.world.url, options), node))
        session = Session(broker, state, send_timeout=10, clock=clock)
        use_session(self, lambda: session)


class Node:
    """A worker.

    Attributes:
        is_dead: its actions no longer have an effect.
        in_hand: every delivery that it ever received.
    """

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.in_hand: list[ImpatientDelivery] = []
        self.app = _App(self)
        self.app.task(name="job", queue=QUEUE, result=False)(self._job)
        self.app.task(name="heavy", queue=QUEUE, result=False, resources={"cpu": 1})(self._job)
        config = WorkerConfig(
            name=name,
            lease=LEASE,
            grace=0,
            concurrency=100,
            prefetch=200,
            slow_loop_warning=0,
            resources={"cpu": 1.0},
        )
        self.worker = Worker(self.app, config)
        self.running = asyncio.create_task(self.worker.run())

    async def _job(self, name: str, seconds: float) -> None:
        if self.is_dead:
            return
        self.world.began.append(name)
        await asyncio.sleep(seconds)
        if not self.is_dead:
            self.world.ended.append(name)

    def kill(self) -> None:
        """Kill it between two instructions; the broker sees it at once."""
        self.is_dead = True
        for delivery in self.in_hand:
            delivery.take_back()
        self.running.cancel()


class World:
    """A broker and a state, their workers, and a record of runs."""

    def __init__(self) -> None:
        self.url = f"memory://{uuid.uuid4().hex}"
        self.is_broker_down = False
        self.is_state_down = False
        self.began: list[str] = []
        self.ended: list[str] = []
        self.renewals = 0
        self.nodes: list[Node] = []
        self._outside = open_memory_broker(self.url, BrokerOptions(clock=_LoopClock()))

    def start(self, name: str) -> Node:
        self.nodes.append(Node(self, name))
        return self.nodes[-1]

    async def send(self, name: str, seconds: float, *, task: str = "job") -> None:
        await self._outside.declare([WorkQueue(QUEUE)])
        body = b'{"task":"%s","id":"%s","args":["%s",%d]}' % (task.encode(), name.encode(), name.encode(), seconds)
        message = Outgoing(queue=QUEUE, body=body, content_type="application/json", job_id=name, task=task)
        await self._outside.publish(message, timeout=5)

    async def is_empty(self) -> bool:
        """Whether nothing is left at the broker, ready, unacked or delayed."""
        (stats,) = await self._outside.stats([QUEUE])
        return stats.ready == 0 and not stats.unsettled and not stats.delayed

    async def until_empty(self, *, within: float) -> None:
        end = asyncio.get_running_loop().time() + within
        while not await self.is_empty():
            assert asyncio.get_running_loop().time() < end, f"began {self.began}, ended {self.ended}"
            await asyncio.sleep(LEASE / 2)

    async def aclose(self) -> None:
        for node in self.nodes:
            node.running.cancel()
        await asyncio.gather(*(node.running for node in self.nodes), return_exceptions=True)
        await self._outside.aclose()
        forget_memory(self.url.removeprefix("memory://"))


@asynccontextmanager
async def world(*names: str) -> AsyncGenerator[World]:
    """Build a world with consuming workers of these names."""
    it = World()
    try:
        for name in names:
            await it.start(name).worker.is_ready.wait()
        yield it
    finally:
        await it.aclose()
