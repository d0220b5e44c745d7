"""Ordered queues in a worker, on `memory://`: one run at a time per shard, and retries that keep the order."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from taskmq import Context, RetryPolicy, Snooze, TaskMQ, WorkQueue
from taskmq.contracts.broker import BrokerOptions, Delivery, Outgoing, QueueStats
from taskmq.errors import StateUnavailable
from taskmq.model.envelope import Envelope
from taskmq.model.outcome import Snoozed
from taskmq.model.states import JobState
from taskmq.model.topology import PARKING, shard_of
from taskmq.testing import FakeClock
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.attempt import Attempt
from taskmq.worker.intake.ordered_shards import LONGEST_HOLD, OrderedShards
from taskmq_local import forget_memory, open_memory_broker
from tests.coroutines import run_by
from tests.unit.worker.staged import FakeDelivery, settle_loop
from tests.virtual_time import run

SHARDS = 2
ONE, OTHER = "a", "c"
assert shard_of(ONE, SHARDS) != shard_of(OTHER, SHARDS)


class Shop:
    """An app with an ordered queue, and a record of its task.

    Attributes:
        fails: remaining failures of a job, by its number; with `Snooze` if `snoozes` has it, and with an outage if
            `cut_off` has it.
    """

    def __init__(self, memory: str, clock: FakeClock) -> None:
        self.clock = clock
        self.runs: list[tuple[str, int, int]] = []
        self.fails: dict[int, int] = {}
        self.snoozes: set[int] = set()
        self.cut_off: set[int] = set()
        self.open = asyncio.Event()
        self.open.set()
        self.running: list[str] = []
        self.most: dict[str, int] = {}
        self.memory = memory
        self.app = self.new_app()
        policy = RetryPolicy(max_attempts=3, base=10, backoff="constant", jitter=False)

        @self.app.task(name="step", queue="steps", order_key="key", retry=policy)
        async def step(context: Context, key: str, number: int) -> int:
            self.runs.append((key, number, context.attempt))
            self.running.append(key)
            self.most[key] = max(self.most.get(key, 0), self.running.count(key))
            try:
                await self.open.wait()
            finally:
                self.running.remove(key)
            if self.fails.get(number, 0):
                self.fails[number] -= 1
                if number in self.snoozes:
                    raise Snooze(60)
                if number in self.cut_off:
                    raise StateUnavailable("no answer")
                raise RuntimeError(number)
            return number

        @self.app.task(name="other")
        async def other() -> None:
            self.runs.append(("other", 0, 1))

        self.step = step
        self.other = other

    def new_app(self) -> TaskMQ:
        return TaskMQ(f"memory://{self.memory}", clock=self.clock, queues=[WorkQueue("steps", ordered=SHARDS)])

    @property
    def numbers(self) -> list[int]:
        return [number for _, number, _ in self.runs]

    @asynccontextmanager
    async def working(self, app: TaskMQ | None = None, **config: Any) -> AsyncIterator[Worker]:
        worker = Worker(app or self.app, WorkerConfig(name="w1", **config))
        running = asyncio.create_task(worker.run())
        await worker.is_ready.wait()
        await settle_loop()
        try:
            yield worker
        finally:
            worker.drain()
            await running

    async def wait(self, seconds: float) -> None:
        """Let time pass and run everything that becomes due."""
        self.clock.advance(seconds)
        await settle_loop()

    async def stats(self, queue: str) -> QueueStats:
        broker = open_memory_broker(f"memory://{self.memory}", BrokerOptions(clock=self.clock))
        (stats,) = await broker.stats([queue])
        await broker.aclose()
        return stats

    def shard(self, key: str = ONE) -> str:
        return f"steps.s{shard_of(key, SHARDS):02d}"


def play(test: Callable[[Shop], Awaitable[None]]) -> None:
    async def main() -> None:
        memory = uuid.uuid4().hex
        try:
            await test(Shop(memory, FakeClock()))
        finally:
            forget_memory(memory)

    run(main())


@run_by(play)
async def test_one_job_of_a_shard_runs_at_a_time_with_any_number_of_free_slots(shop: Shop, /) -> None:
    shop.open.clear()
    await shop.step.asend_many([(ONE, n) for n in range(5)] + [(OTHER, n) for n in range(5)])

    async with shop.working(concurrency=8):
        assert sorted(shop.running) == [ONE, OTHER]
        shop.open.set()
        await settle_loop()

    assert shop.most == {ONE: 1, OTHER: 1}
    for key in (ONE, OTHER):
        assert [number for ran, number, _ in shop.runs if ran == key] == [0, 1, 2, 3, 4]


@run_by(play)
async def test_a_failed_job_runs_again_before_those_behind_it(shop: Shop, /) -> None:
    shop.fails = {1: 2}
    await shop.step.asend_many([(ONE, n) for n in range(3)])
    await shop.step.asend(OTHER, 7)

    async with shop.working():
        assert shop.runs == [(ONE, 0, 1), (OTHER, 7, 1), (ONE, 1, 1)]
        await shop.wait(9.9)
        assert len(shop.runs) == 3
        await shop.wait(0.1)
        assert shop.runs[3:] == [(ONE, 1, 2)]
        await shop.wait(10)
        assert shop.runs[4:] == [(ONE, 1, 3), (ONE, 2, 1)]


@run_by(play)
async def test_a_job_without_attempts_left_is_dead_and_the_shard_continues(shop: Shop, /) -> None:
    shop.fails = {0: 3}
    job = await shop.step.asend(ONE, 0)
    await shop.step.asend(ONE, 1)

    async with shop.working():
        await shop.wait(10)
        await shop.wait(10)
        record = await shop.app.jobs.find_result(job.id)
        assert record is not None
        assert (record.state, record.attempt) == (JobState.FAILED, 3)

    assert shop.runs == [(ONE, 0, 1), (ONE, 0, 2), (ONE, 0, 3), (ONE, 1, 1)]
    assert (await shop.stats("steps.dlq")).ready == 1
    assert (await shop.stats(shop.shard())).ready == 0


@run_by(play)
async def test_a_snoozed_job_keeps_its_position_and_its_attempt(shop: Shop, /) -> None:
    shop.fails, shop.snoozes = {0: 4}, {0}
    await shop.step.asend_many([(ONE, 0), (ONE, 1)])

    async with shop.working():
        for _ in range(4):
            await shop.wait(60)

    assert shop.runs == [*[(ONE, 0, 1)] * 5, (ONE, 1, 1)]


@run_by(play)
async def test_a_job_interrupted_by_outages_keeps_its_position_and_waits_longer_each_time(shop: Shop, /) -> None:
    shop.fails, shop.cut_off = {0: 3}, {0}
    await shop.step.asend_many([(ONE, 0), (ONE, 1)])

    async with shop.working():
        for runs, (too_soon, enough) in enumerate([(0.4, 1), (0.9, 2), (1.9, 4)], start=1):
            await shop.wait(too_soon)
            assert shop.runs == [(ONE, 0, 1)] * runs
            await shop.wait(enough - too_soon)

    assert shop.runs == [*[(ONE, 0, 1)] * 4, (ONE, 1, 1)]


@run_by(play)
async def test_a_waiting_job_takes_no_slot(shop: Shop, /) -> None:
    shop.fails = {0: 1}
    await shop.step.asend_many([(ONE, 0), (ONE, 1)])

    async with shop.working(concurrency=1):
        await shop.other.asend()
        await shop.step.asend(OTHER, 5)
        await settle_loop()
        assert shop.runs == [(ONE, 0, 1), ("other", 0, 1), (OTHER, 5, 1)]
        await shop.wait(10)

    assert shop.runs[3:] == [(ONE, 0, 2), (ONE, 1, 1)]


@run_by(play)
async def test_a_burst_does_not_end_while_a_job_waits(shop: Shop, /) -> None:
    shop.fails = {0: 1}
    await shop.step.asend_many([(ONE, 0), (ONE, 1)])
    worker = Worker(shop.app, WorkerConfig(burst=True))
    running = asyncio.create_task(worker.run())
    await worker.is_ready.wait()

    await asyncio.sleep(10)
    assert not running.done()
    shop.clock.advance(10)
    await running

    assert shop.runs == [(ONE, 0, 1), (ONE, 0, 2), (ONE, 1, 1)]


@run_by(play)
async def test_a_stopping_worker_requeues_the_job_in_order_and_the_next_starts_over(shop: Shop, /) -> None:
    shop.fails = {0: 2}
    await shop.step.asend_many([(ONE, 0), (ONE, 1)])

    async with shop.working():
        await shop.wait(10)
        assert shop.runs == [(ONE, 0, 1), (ONE, 0, 2)]
    assert (await shop.stats(shop.shard())).ready == 2

    async with shop.working():
        assert shop.runs[2:] == [(ONE, 0, 1), (ONE, 1, 1)]


@run_by(play)
async def test_a_job_that_fails_while_its_worker_stops_is_requeued_in_order(shop: Shop, /) -> None:
    shop.fails = {0: 1}
    shop.open.clear()
    await shop.step.asend_many([(ONE, 0), (ONE, 1)])

    async with shop.working() as worker:
        worker.drain()
        await settle_loop()
        shop.open.set()
    assert shop.runs == [(ONE, 0, 1)]
    assert (await shop.stats(shop.shard())).ready == 2

    async with shop.working():
        assert shop.runs[1:] == [(ONE, 0, 1), (ONE, 1, 1)]


@run_by(play)
async def test_a_job_of_an_unknown_task_waits_in_order_and_is_then_parked(shop: Shop, /) -> None:
    async def later(key: str, number: int) -> None: ...

    elsewhere = shop.new_app()
    unknown = elsewhere.task(name="later", queue="steps", order_key="key")(later)
    await unknown.asend(ONE, 0)
    await elsewhere.aclose()
    await shop.step.asend(ONE, 1)

    async with shop.working(unknown_attempts=2, unknown_delay=5):
        await shop.wait(5)
        assert shop.runs == []
        await shop.wait(9.9)
        assert shop.runs == []
        await shop.wait(0.1)

    assert shop.runs == [(ONE, 1, 1)]
    assert (await shop.stats(PARKING)).ready == 1


def test_a_long_wait_is_split_so_that_no_broker_requeues_the_message() -> None:
    async def test(shop: Shop) -> None:
        policy = RetryPolicy(max_attempts=2, base="25m", cap="25m", backoff="constant", jitter=False)
        runs: list[tuple[int, int, bool]] = []

        @shop.app.task(name="slow", queue="steps", order_key="key", retry=policy)
        async def slow(context: Context, key: str, number: int) -> None:
            runs.append((number, context.attempt, context.redelivered))
            if number == 0 and context.attempt == 1:
                raise RuntimeError

        await slow.asend_many([(ONE, 0), (ONE, 1)])
        async with shop.working():
            for _ in range(2):
                await shop.wait(LONGEST_HOLD)
                assert runs == [(0, 1, False)]
            await shop.wait(25 * 60 - 2 * LONGEST_HOLD - 1)
            assert runs == [(0, 1, False)]
            await shop.wait(1)

        assert runs == [(0, 1, False), (0, 2, True), (1, 1, False)]

    assert LONGEST_HOLD < 1800, "RabbitMQ's consumer timeout is 30 minutes"
    play(test)


@run_by(play)
async def test_a_job_that_expires_while_it_waits_is_cancelled(shop: Shop, /) -> None:
    shop.fails = {0: 3}
    job = await shop.step.options(expires=15).asend(ONE, 0)
    await shop.step.asend(ONE, 1)

    async with shop.working():
        await shop.wait(10)
        await shop.wait(10)
        record = await shop.app.jobs.find_result(job.id)

    assert record is not None
    assert record.state is JobState.CANCELLED
    assert shop.runs == [(ONE, 0, 1), (ONE, 0, 2), (ONE, 1, 1)]


@run_by(play)
async def test_an_early_job_waits_at_the_broker_and_lets_the_others_pass(shop: Shop, /) -> None:
    # As after the longest delay of a broker: due, and yet too early.
    await shop.step.asend(ONE, 1)
    broker = shop.app.sessions.current().broker
    eta = shop.clock.now_ms() + 3_600_000
    body = b'{"task":"step","id":"early","args":["a",0],"order_key":"a","eta":%d}' % eta
    early = Outgoing(queue=shop.shard(), body=body, content_type="application/json", job_id="early", task="step")
    await broker.publish(early, timeout=5)
    await shop.step.asend(ONE, 2)

    async with shop.working():
        assert shop.numbers == [1, 2]
        assert (await shop.stats(shop.shard())).delayed == 1
        await shop.wait(3600)
        assert shop.numbers == [1, 2, 0]


@run_by(play)
async def test_a_message_without_an_id_has_its_attempts_as_well(shop: Shop, /) -> None:
    shop.fails = {0: 5}
    broker = shop.app.sessions.current().broker
    await broker.declare([shop.app.producer.queue("steps")])
    body = b'{"task":"step","args":["a",0]}'
    await broker.publish(
        Outgoing(queue=shop.shard(), body=body, content_type="application/json", job_id="", task=""), timeout=5
    )

    async with shop.working():
        for _ in range(5):
            await shop.wait(10)

    assert shop.runs == [(ONE, 0, 1), (ONE, 0, 2), (ONE, 0, 3)]


class Revoked(FakeDelivery):
    """A delivery whose connection was lost."""

    revoked = True


class Hall:
    """Shards, and a record of their decisions."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.again: list[Delivery] = []
        self.passed: list[Delivery] = []
        self.shards = OrderedShards(
            self.clock, unknown_attempts=3, unknown_delay=5, again=self.again.append, passed=self.passed.append
        )

    def snooze(self, delivery: FakeDelivery, seconds: float) -> None:
        attempt = Attempt(delivery, Envelope(task="t"), None, "j", started=1)  # type: ignore[arg-type]
        assert self.shards.keep(attempt, Snoozed(timedelta(seconds=seconds)))


@pytest.mark.parametrize("kind", [FakeDelivery, Revoked])
async def test_a_withdrawn_job_is_not_run_again(kind: type[FakeDelivery]) -> None:
    hall = Hall()
    delivery = kind(b"{}", queue="q.s00")
    hall.snooze(delivery, 5)
    assert hall.shards.holds(delivery)

    await hall.clock.wait_for_sleepers()
    hall.clock.advance(5)
    await settle_loop()

    assert not hall.shards.holds(delivery)
    assert (hall.again, hall.passed) == (([], [delivery]) if kind is Revoked else ([delivery], []))
    assert delivery.settled is None


async def test_a_closed_shard_holds_nothing() -> None:
    hall = Hall()
    held, late = FakeDelivery(b"{}", queue="q.s00"), FakeDelivery(b"{}", queue="q.s01")
    hall.snooze(held, 5)

    assert hall.shards.close() == [held]
    hall.snooze(late, 5)
    await settle_loop()

    assert not hall.shards.is_holding
    assert (held.settled, late.settled) == (None, "requeued")
