import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.errors import BrokerUnavailable, PublishRejected, QueueMissing, SendError, TopologyMismatch, Unroutable
from taskmq.model.topology import WorkQueue
from taskmq.testing import FlakyBroker
from taskmq_local import MemoryBroker, forget_memory, open_memory_broker, open_memory_state

pytestmark = pytest.mark.real_time

_QUEUE = WorkQueue("q")


@pytest.fixture
def url() -> Iterator[str]:
    name = str(uuid4())
    yield f"memory://{name}"
    forget_memory(name)


def outgoing(number: int = 0) -> Outgoing:
    return Outgoing(queue="q", body=b"{}", content_type="application/json", job_id=str(number), task="t")


class SlowBroker(FlakyBroker):
    """A broker whose `declare` takes the time that the test sets, on the loop clock; it records timeouts."""

    def __init__(self, inner: MemoryBroker, clock: "SkippingLoop", declare_takes: float) -> None:
        super().__init__(inner)
        self.timeouts: list[float] = []
        self.declared = 0
        self._loop = clock
        self._declare_takes = declare_takes

    async def declare(self, queues: Any) -> None:
        self.declared += 1
        self._loop.skipped += self._declare_takes
        # The loop reads its clock before it continues here.
        for _ in range(3):
            await asyncio.sleep(0)
        await super().declare(queues)

    def publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
        self.timeouts.append(timeout)
        return super().publish(message, timeout=timeout)


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be advanced."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


async def test_a_queue_is_declared_once(url: str) -> None:
    broker = FlakyBroker(open_memory_broker(url, BrokerOptions()))
    session = Session(broker, None, send_timeout=10)
    was_declared = session.is_declared(_QUEUE)
    await session.declare([_QUEUE, WorkQueue("other")])
    broker.fail_calls("declare", 1, TopologyMismatch("not again"))

    await session.declare([_QUEUE])
    await session.declare([])

    assert not was_declared
    assert session.is_declared(_QUEUE)
    with pytest.raises(TopologyMismatch):
        await session.declare([WorkQueue("third")])
    assert not session.is_declared(WorkQueue("third"))


async def test_a_send_to_a_missing_queue_that_may_not_be_declared_is_unroutable(url: str) -> None:
    broker = FlakyBroker(open_memory_broker(url, BrokerOptions()))
    session = Session(broker, None, send_timeout=10)
    broker.fail_calls("declare", 2, QueueMissing("orders", "have it made"))

    with pytest.raises(Unroutable, match="have it made"):
        await session.declare_and_publish(_QUEUE, outgoing())
    outcomes = await session.publish_all([_QUEUE], [outgoing(), outgoing(1)])

    assert [type(outcome) for outcome in outcomes] == [Unroutable, Unroutable]
    assert broker.kinds() == []


async def test_a_declared_queue_is_published_to_directly(url: str) -> None:
    broker = FlakyBroker(open_memory_broker(url, BrokerOptions()))
    session = Session(broker, None, send_timeout=10)
    await session.declare_and_publish(_QUEUE, outgoing())

    await session.publish(outgoing(1))

    assert broker.kinds() == ["Published", "Confirmed"] * 2


def test_declaring_and_publishing_share_the_send_timeout(url: str) -> None:
    timeouts: list[float] = []

    async def main() -> None:
        broker = SlowBroker(open_memory_broker(url, BrokerOptions()), loop, declare_takes=7)
        session = Session(broker, None, send_timeout=10)
        await session.declare_and_publish(_QUEUE, outgoing())
        await session.publish_all([WorkQueue("other")], [outgoing(1), outgoing(2)])
        timeouts.extend(broker.timeouts)

    loop = SkippingLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()

    assert len(timeouts) == 3
    assert all(0 <= timeout <= 3 for timeout in timeouts)


def test_a_declaration_beyond_the_send_timeout_is_an_unavailable_broker(url: str) -> None:
    async def main() -> None:
        broker = SlowBroker(open_memory_broker(url, BrokerOptions()), loop, declare_takes=11)
        session = Session(broker, None, send_timeout=10)

        with pytest.raises(BrokerUnavailable, match=rf"^{url} did not declare its queues within 10 s$"):
            await session.declare_and_publish(_QUEUE, outgoing())
        (error,) = set(await session.publish_all([_QUEUE], [outgoing(), outgoing(1)]))

        assert isinstance(error, BrokerUnavailable)
        assert broker.declared == 2
        assert broker.timeouts == []

    loop = SkippingLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


async def test_the_outcomes_of_a_batch_keep_its_order(url: str) -> None:
    full = PublishRejected("full")

    broker = FlakyBroker(open_memory_broker(url, BrokerOptions()))
    broker.fail_publishes(2, full)
    session = Session(broker, None, send_timeout=10)

    outcomes: list[SendError | None] = await session.publish_all([_QUEUE], [outgoing(i) for i in range(4)])

    assert outcomes == [full, full, None, None]


class BrokenBroker(FlakyBroker):
    """An adapter that breaks its contract: a publish ends with a foreign error."""

    def publish(self, message: Outgoing, *, timeout: float) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(ZeroDivisionError("a bug in the adapter"))
        return future


async def test_a_bug_in_an_adapter_is_not_reported_as_a_refusal(url: str) -> None:
    session = Session(BrokenBroker(open_memory_broker(url, BrokerOptions())), None, send_timeout=10)

    with pytest.raises(ZeroDivisionError):
        await session.publish_all([_QUEUE], [outgoing()])


async def test_closing_closes_broker_and_state_and_may_be_repeated(url: str) -> None:
    broker = open_memory_broker(url, BrokerOptions())
    state = open_memory_state(url, BrokerOptions())
    for session in (Session(broker, state, send_timeout=10), Session(broker, None, send_timeout=10)):
        await session.aclose()
        await session.aclose()

    with pytest.raises(BrokerUnavailable):
        await broker.connect(timeout=1)
