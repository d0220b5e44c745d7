"""Sending with delays in the state: the sender's result for each behaviour of the state."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.contracts.stores import DelayStore, WaitingMessage
from taskmq.errors import BrokerUnavailable, InvalidOption, PublishUnknown, StateUnavailable, TooLarge
from taskmq.model.topology import WorkQueue
from taskmq.testing import FakeClock, FlakyBroker
from taskmq_local import forget_memory, open_memory_broker, open_memory_state

_QUEUE = WorkQueue("q")
_NOW = 1_700_000_000_000


class StubbornDelays:
    """A store whose puts end as the test says."""

    def __init__(self, inner: DelayStore) -> None:
        self.inner = inner
        self.error: Exception | None = None
        self.hangs = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def put(self, message: WaitingMessage) -> None:
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.error is not None:
            raise self.error
        await self.inner.put(message)


@pytest.fixture
def name() -> Iterator[str]:
    name = uuid4().hex
    yield name
    forget_memory(name)


def outgoing(job: str = "job", *, due: int | None = _NOW + 1_000) -> Outgoing:
    return Outgoing(queue="q", body=b"{}", content_type="application/json", job_id=job, task="t", due=due)


def play(
    name: str,
    test: Callable[[Session, StubbornDelays, FlakyBroker], Coroutine[Any, Any, None]],
    *,
    timeout: float = 10,
) -> None:
    async def main() -> None:
        options = BrokerOptions(clock=FakeClock(_NOW))
        broker = FlakyBroker(open_memory_broker(f"memory://{name}", options))
        state = open_memory_state(f"memory://{name}", options)
        delays = StubbornDelays(state.delays)
        session = Session(broker, state, send_timeout=timeout, delays=delays, clock=options.clock)
        async with asyncio.timeout(30):
            await test(session, delays, broker)
            await session.aclose()

    asyncio.run(main())


def test_every_way_to_send_stores_delayed_jobs_in_the_state(name: str) -> None:
    async def test(session: Session, delays: StubbornDelays, broker: FlakyBroker) -> None:
        await session.declare_and_publish(_QUEUE, outgoing("a"))
        await session.publish(outgoing("b"))
        assert await session.publish_all([_QUEUE], [outgoing("c"), outgoing("d")]) == [None, None]

        assert {message.job_id for message in await delays.inner.list(limit=10)} == {"a", "b", "c", "d"}
        assert broker.kinds() == []

    play(name, test)


@pytest.mark.parametrize("due", [None, 0, _NOW])
def test_due_jobs_go_to_the_broker(name: str, due: int | None) -> None:
    async def test(session: Session, delays: StubbornDelays, broker: FlakyBroker) -> None:
        await session.declare_and_publish(_QUEUE, outgoing(due=due))

        assert await delays.inner.count() == 0
        assert broker.kinds() == ["Published", "Confirmed"]

    play(name, test)


def test_messages_without_an_id_go_to_the_broker_unless_another_store_replaces_it(name: str) -> None:
    async def test(session: Session, delays: StubbornDelays, broker: FlakyBroker) -> None:
        await session.declare_and_publish(_QUEUE, outgoing(""))
        await session.publish(outgoing(""))

        assert await delays.inner.count() == 0
        assert broker.kinds() == ["Published", "Confirmed"] * 2

    play(name, test)


def test_an_unreachable_state_raises_a_typed_error_and_the_broker_is_not_used(name: str) -> None:
    async def test(session: Session, delays: StubbornDelays, broker: FlakyBroker) -> None:
        delays.error = StateUnavailable("the state redis://host is gone")
        with pytest.raises(BrokerUnavailable, match=r"delay='state'\): the state redis://host is gone"):
            await session.declare_and_publish(_QUEUE, outgoing())
        (error,) = await session.publish_all([_QUEUE], [outgoing()])
        assert isinstance(error, BrokerUnavailable)

        delays.error = StateUnavailable("the answer of redis://host was lost", is_certain=False)
        with pytest.raises(PublishUnknown, match="job may or may not wait in the state: the answer"):
            await session.publish(outgoing())

        assert broker.kinds() == []

    play(name, test)


def test_a_state_that_does_not_answer_in_time_has_an_unknown_outcome(name: str) -> None:
    async def test(session: Session, delays: StubbornDelays, broker: FlakyBroker) -> None:
        delays.hangs = True

        with pytest.raises(PublishUnknown, match="no answer within"):
            await session.declare_and_publish(_QUEUE, outgoing())

        assert broker.kinds() == []

    play(name, test, timeout=0.2)


def test_a_bug_in_a_store_is_not_reported_as_a_refusal(name: str) -> None:
    async def test(session: Session, delays: StubbornDelays, _: FlakyBroker) -> None:
        delays.error = ZeroDivisionError("a bug in the adapter")

        with pytest.raises(ZeroDivisionError):
            await session.publish_all([_QUEUE], [outgoing()])

    play(name, test)


def test_a_message_the_broker_would_refuse_later_is_refused_at_once(name: str) -> None:
    async def test(session: Session, delays: StubbornDelays, broker: FlakyBroker) -> None:
        large = replace(outgoing(), body=bytes(broker.max_message_bytes + 1))

        with pytest.raises(TooLarge, match="the message of job job"):
            await session.declare_and_publish(_QUEUE, large)

        assert await delays.inner.count() == 0

    play(name, test)


@pytest.mark.real_time
async def test_delayed_jobs_go_to_the_job_store_if_there_is_one() -> None:
    app = TaskMQ("memory://delays", store="sqlite:///jobs.db", delay="state")

    with pytest.raises(InvalidOption, match="delay='state' with a job store"):
        app.sessions.current()
