"""Moving from the state to the broker, on `memory://`."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions, Outgoing
from taskmq.contracts.stores import DelayStore, TakenMessage, WaitingMessage
from taskmq.durable.relay import Relay
from taskmq.errors import BrokerUnavailable, PublishRejected, SendError, StateUnavailable
from taskmq.model.topology import UNROUTABLE, WorkQueue
from taskmq.testing import Confirmed, FakeClock, FlakyBroker
from taskmq.testing.broker_suite.case import peek
from taskmq.testing.runner import CancelPoint, cancel_at
from taskmq_local import MemoryBroker, forget_memory, open_memory_broker, open_memory_state
from tests.coroutines import run_by
from tests.virtual_time import run

_QUEUE = WorkQueue("work")


@dataclass
class FailingDelays:
    """A store with configured failures per method; a call takes effect some loop iterations before or after its
    failure.
    """

    inner: DelayStore
    failing: dict[str, int] = field(default_factory=dict[str, int])
    calls: list[str] = field(default_factory=list[str])
    has_effect: bool = False

    def _fails(self, name: str) -> bool:
        self.calls.append(name)
        left = self.failing.get(name, 0)
        self.failing[name] = max(left - 1, 0)
        return left > 0

    async def put(self, message: WaitingMessage) -> None:
        await self.inner.put(message)

    async def take(self, *, now: int, limit: int, lease: float) -> list[TakenMessage]:
        if self._fails("take"):
            if self.has_effect:
                await self.inner.take(now=now, limit=limit, lease=lease)
            raise StateUnavailable("no state (test)")
        await asyncio.sleep(0)
        taken = await self.inner.take(now=now, limit=limit, lease=lease)
        await asyncio.sleep(0)
        return taken

    async def mark_done(self, taken: Sequence[TakenMessage]) -> None:
        if self._fails("done"):
            raise StateUnavailable("no state (test)")
        await asyncio.sleep(0)
        await self.inner.mark_done(taken)
        await asyncio.sleep(0)

    async def give_back(self, taken: Sequence[TakenMessage]) -> None:
        if self._fails("give_back"):
            raise StateUnavailable("no state (test)")
        await self.inner.give_back(taken)

    async def next_due(self) -> int | None:
        if self._fails("next_due"):
            raise ZeroDivisionError("a bug in the adapter")
        return await self.inner.next_due()

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        return self.inner.listen(heard)

    async def count(self) -> int:
        return await self.inner.count()

    async def find(self, job_id: str) -> WaitingMessage | None:
        return await self.inner.find(job_id)

    async def list(
        self, *, limit: int, task: str | None = None, queues: Collection[str] | None = None
    ) -> list[WaitingMessage]:
        return await self.inner.list(limit=limit, task=task, queues=queues)

    async def cancel(self, job_id: str) -> bool:
        return await self.inner.cancel(job_id)

    async def swap(self, found: WaitingMessage, changed: WaitingMessage) -> bool:
        return await self.inner.swap(found, changed)


class Stage:
    """A broker and a state with configured failures, and a session of both."""

    def __init__(self, name: str) -> None:
        self.clock = FakeClock()
        options = BrokerOptions(clock=self.clock)
        self.memory: MemoryBroker = open_memory_broker(f"memory://{name}", options)
        self.broker = FlakyBroker(self.memory)
        self.state = open_memory_state(f"memory://{name}", options)
        self.delays = FailingDelays(self.state.delays)
        self.session = Session(self.broker, self.state, send_timeout=10, delays=self.delays, clock=self.clock)

    def relay(self) -> Relay[TakenMessage]:
        relay = self.session.delay_relay()
        assert relay is not None
        return relay

    async def put(self, *jobs: str, delay: float = 1, queue: str = "work") -> None:
        for job in jobs:
            due = self.clock.now_ms() + round(delay * 1000)
            await self.session.publish(outgoing(job, queue=queue, due=due))

    async def ready(self, queue: str = "work") -> list[str]:
        """Return the jobs in a queue in order."""
        async with peek(self.memory, queue, limit=1000) as deliveries:
            return [delivery.message_id or "" for delivery in deliveries]

    async def permits(self, seconds: float) -> None:
        """Advance both the clock of the messages and the loop's."""
        self.clock.advance(seconds)
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def relaying(self, count: int = 1) -> AsyncGenerator[None, None]:
        relays = [self.relay() for _ in range(count)]
        tasks = [asyncio.create_task(relay.run()) for relay in relays]
        await asyncio.sleep(0.001)
        try:
            yield
        finally:
            for relay in relays:
                relay.stop()
            async with asyncio.timeout(60):
                await asyncio.gather(*tasks)


def outgoing(job: str, *, queue: str = "work", due: int | None = None) -> Outgoing:
    return Outgoing(queue=queue, body=b"{}", content_type="application/json", job_id=job, task="t", due=due)


def play(test: Callable[[Stage], Coroutine[None, None, None]]) -> None:
    name = uuid4().hex

    async def main() -> None:
        stage = Stage(name)
        await stage.session.declare([_QUEUE])
        await test(stage)
        await stage.session.aclose()

    try:
        run(main())
    finally:
        forget_memory(name)


@run_by(play)
async def test_a_message_is_moved_when_it_is_due_and_not_before(stage: Stage, /) -> None:
    async with stage.relaying():
        await stage.put("b", delay=5)
        await stage.put("a", delay=3)
        await stage.permits(2.999)
        assert await stage.ready() == []
        await stage.permits(0.002)
        assert await stage.ready() == ["a"]
        await stage.permits(2)

    assert await stage.ready() == ["a", "b"]
    assert await stage.delays.count() == 0


@run_by(play)
async def test_an_earlier_message_wakes_a_sleeping_relay(stage: Stage, /) -> None:
    await stage.put("late", delay=3600)
    async with stage.relaying():
        await stage.put("early", delay=0.1)
        stage.clock.advance(0.1)
        # Less than the interval of the regular poll.
        await asyncio.sleep(0.05)

        assert await stage.ready() == ["early"]


def test_messages_keep_all_their_properties() -> None:
    full = Outgoing(
        queue="work",
        body=b"body",
        content_type="application/msgpack",
        job_id="job",
        task="shop.resize",
        due=1_700_000_001_000,
        enqueued=3,
        root="root",
        headers={"x-taskmq-attempt": 2},
        priority=7,
    )

    async def test(stage: Stage) -> None:
        await stage.session.publish(full)
        async with stage.relaying():
            await stage.permits(1.5)

        (confirmed,) = [entry for entry in stage.broker.journal if isinstance(entry, Confirmed)]
        assert confirmed.message == Outgoing(
            **{name: getattr(full, name) for name in Outgoing.__struct_fields__ if name != "due"}
        )

    play(test)


@run_by(play)
async def test_several_relays_share_the_work_and_move_each_message_once(stage: Stage, /) -> None:
    jobs = [f"job {number}" for number in range(1_000)]

    await stage.put(*jobs)
    async with stage.relaying(5):
        await stage.permits(3)

    assert sorted(await stage.ready()) == sorted(jobs)


def test_messages_stay_while_the_broker_is_down_and_move_once_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Stage) -> None:
        stage.broker.fail_publishes(16, BrokerUnavailable("no broker (test)"))
        await stage.put("a", "b")
        async with stage.relaying():
            await stage.permits(1.1)
            assert await stage.ready() == []
            assert await stage.delays.count() == 2
            await stage.permits(60)

        assert sorted(await stage.ready()) == ["a", "b"]
        assert await stage.delays.count() == 0

    with caplog.at_level(logging.INFO):
        play(test)
    # Once each, however many attempts it took.
    assert [record.message for record in caplog.records] == [
        "publishing delayed jobs failed, will retry: no broker (test)",
        "delayed jobs are published again",
    ]


@run_by(play)
async def test_a_published_message_is_not_published_again_because_its_neighbour_failed(stage: Stage, /) -> None:
    await stage.put("a", delay=1)
    await stage.put("b", delay=1.5)
    stage.broker.fail_publishes(1, BrokerUnavailable("no broker (test)"))
    stage.clock.advance(2)
    async with stage.relaying():
        await stage.permits(5)

    assert await stage.ready() == ["b", "a"]


@pytest.mark.parametrize("has_effect", [False, True])
def test_the_relay_waits_while_the_state_is_down_and_then_continues(*, has_effect: bool) -> None:
    async def test(stage: Stage) -> None:
        await stage.put("a", "b")
        stage.delays.failing["take"] = 3
        stage.delays.has_effect = has_effect
        async with stage.relaying():
            # If the messages were read and the answer was lost, they return after the lease.
            await stage.permits(1.5)
            await stage.permits(60)

        assert await stage.ready() == ["a", "b"]
        assert await stage.delays.count() == 0

    play(test)


@run_by(play)
async def test_publications_are_reported_again_to_a_state_that_did_not_answer(stage: Stage, /) -> None:
    await stage.put("a")
    stage.delays.failing["done"] = 5
    async with stage.relaying():
        await stage.permits(10)

    assert await stage.ready() == ["a"]
    assert await stage.delays.count() == 0


@run_by(play)
async def test_a_message_moved_without_a_report_is_repeated_rather_than_lost(stage: Stage, /) -> None:
    await stage.put("a")
    stage.delays.failing["done"] = 200
    async with stage.relaying():
        for _ in range(20):
            await stage.permits(1)
        stage.delays.failing["done"] = 0
        for _ in range(20):
            await stage.permits(1)

    jobs = await stage.ready()
    assert set(jobs) == {"a"}
    assert len(jobs) == 2
    assert await stage.delays.count() == 0


@run_by(play)
async def test_a_message_without_a_queue_goes_to_the_dead_letters(stage: Stage, /) -> None:
    await stage.put("a", "c")
    await stage.put("b", queue="gone")
    async with stage.relaying():
        await stage.permits(2)

    assert await stage.ready() == ["a", "c"]
    async with peek(stage.memory, UNROUTABLE, limit=10) as deliveries:
        assert [(each.message_id, each.headers["x-taskmq-queue"]) for each in deliveries] == [("b", "gone")]
    assert await stage.delays.count() == 0


def test_a_refused_message_does_not_delay_those_behind_it() -> None:
    refusal: SendError = PublishRejected("the queue is full (test)")

    async def test(stage: Stage) -> None:
        await stage.put("refused", delay=1)
        await stage.put("behind", delay=1.001)
        stage.broker.fail_publishes(1, refusal)
        async with stage.relaying():
            await stage.permits(2)
            assert await stage.ready() == ["behind"]
            assert await stage.delays.count() == 1
            for _ in range(20):
                await stage.permits(1)

        assert await stage.ready() == ["behind", "refused"]

    play(test)


def test_a_bug_in_an_adapter_does_not_stop_the_relay(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Stage) -> None:
        await stage.put("a")
        stage.delays.failing["next_due"] = 2
        async with stage.relaying():
            await stage.permits(10)

        assert await stage.ready() == ["a"]

    play(test)
    assert sum(record.levelno == logging.CRITICAL for record in caplog.records) == 2


@run_by(play)
async def test_a_stopping_relay_finishes_the_current_batch(stage: Stage, /) -> None:
    await stage.put("a")
    stage.broker.hang_publishes()
    relay = stage.relay()
    running = asyncio.create_task(relay.run())
    stage.clock.advance(1)
    while not stage.broker.hanging:
        await asyncio.sleep(0.1)

    relay.stop()
    await asyncio.sleep(1)
    assert not running.done()
    stage.broker.release_publishes()
    await running

    assert await stage.ready() == ["a"]
    assert await stage.delays.count() == 0


@run_by(play)
async def test_a_relay_that_waits_for_a_broker_stops_at_once(stage: Stage, /) -> None:
    await stage.put("a")
    stage.broker.fail_publishes(100, BrokerUnavailable("no broker (test)"))
    stage.clock.advance(1)
    async with stage.relaying():
        await asyncio.sleep(60)
        before = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() - before < 0.1


def test_a_relay_that_dies_at_any_moment_loses_no_message() -> None:
    jobs = {f"job {number}" for number in range(3)}
    moments: list[int] = []

    async def test(stage: Stage) -> None:
        for moment in range(1, 30):
            await stage.put(*jobs)
            stage.clock.advance(1)
            relay = stage.relay()
            # The awaited call has taken effect, and the relay never learns of it.
            await cancel_at(CancelPoint(wakeups=moment), relay.run(), within=60)
            if await stage.delays.count() == 0:
                moments.append(moment)
            stage.clock.advance(60)

            async with stage.relaying():
                await stage.permits(2)

            moved = await stage.ready()
            assert set(moved) == jobs, moment
            # At most one repetition per dead relay.
            assert max(Counter(moved).values()) <= 2, moment
            assert await stage.delays.count() == 0, moment
            await stage.memory.purge("work")

    play(test)
    # The test checks itself: some moments are before the end of the move, some after.
    assert moments
    assert moments[0] > 2
