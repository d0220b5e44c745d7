"""Benchmark of an installation: no-op jobs through a separate queue, with a worker in this process."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from time import perf_counter
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.broker_abilities import Deleting
from taskmq.contracts.stores import State
from taskmq.errors import BrokerUnavailable, InvalidOption, QueueMissing
from taskmq.model.topology import WorkQueue, dead_letter_queue
from taskmq.tasks.task import AsyncTask
from taskmq.worker import Worker, WorkerConfig

_LOOKS_AT_STATE: Final = 200
_PATIENCE: Final = 30.0
_BREATH: Final = 0.005


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a benchmark.

    Attributes:
        jobs: number of jobs to send at once, and then to run.
        concurrency: slots of the worker.
        rate: jobs per second while measuring latency.
        seconds: how long to measure latency.
    """

    jobs: int = 5_000
    concurrency: int = 32
    rate: int = 100
    seconds: float = 5.0

    def __post_init__(self) -> None:
        if min(self.jobs, self.concurrency, self.rate) < 1 or self.seconds <= 0:
            raise InvalidOption("jobs, concurrency and rate must be at least 1; seconds must be more than 0")


class Latency(msgspec.Struct, frozen=True):
    """Percentiles of a latency in milliseconds."""

    p50: float
    p99: float


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a benchmark.

    Attributes:
        sent: confirmed jobs per second, from one process in one call.
        run: jobs per second that one worker process ran and acknowledged, from a full queue.
        start: time from `send` to the start of the run, at the plan's rate, by one clock.
        state_round_trip: duration of one small request; None without a state.
    """

    broker: str
    state: str | None
    plan: BenchPlan
    sent: float
    run: float
    start: Latency
    state_round_trip: Latency | None


async def bench(
    url: str, state: str | None, plan: BenchPlan, *, say: Callable[[str], object] = lambda _: None
) -> BenchReport:
    """Measure the broker and the state at these URLs, and leave nothing behind, even if cancelled.

    Args:
        say: called with a description of each step.

    Raises:
        BrokerUnavailable, StateUnavailable: one of them could not be reached.
        SendError: a job was not accepted.
    """
    name = f"bench.{secrets.token_hex(6)}"
    app = TaskMQ(url, state=state, name="taskmq bench")
    measured = _Measured(plan.jobs)
    noop = measured.define(app, name)
    async with app:
        try:
            say(f"sending {plan.jobs} jobs through the queue {name}, which is deleted afterwards")
            began = perf_counter()
            await noop.asend_many([(None,)] * plan.jobs)
            sent = plan.jobs / (perf_counter() - began)
            session = app.sessions.current()
            async with _working(url, state, name, plan.concurrency, measured):
                say(f"running them in {plan.concurrency} slots of one worker process")
                await measured.wait_for_all()
                say(f"sending {plan.rate} jobs a second for {plan.seconds:g} s")
                start = await _latency(noop, plan, measured)
            return BenchReport(
                broker=session.broker.address,
                state=None if session.state is None else session.state.address,
                plan=plan,
                sent=round(sent, 1),
                run=round(measured.run_a_second, 1),
                start=start,
                state_round_trip=None if session.state is None else await _round_trip(session.state),
            )
        finally:
            await _delete(app, name)


class _Measured:
    """Measurements of the jobs, which run in this process."""

    def __init__(self, jobs: int) -> None:
        self.waits: list[float] = []
        self._jobs = self._left = jobs
        self._all_ran = asyncio.Event()
        self._began: float | None = None
        self._ended = 0.0

    def define(self, app: TaskMQ, queue: str) -> AsyncTask[[float | None], None]:
        """Define the no-op job as a task of an app; it records when it starts."""

        @app.task(name="taskmq.bench", queue=queue, result=False, retry=None)
        async def noop(sent: float | None) -> None:
            now = perf_counter()
            if sent is not None:
                self.waits.append(now - sent)
                return
            self._began = self._began or now
            self._left -= 1
            if not self._left:
                self._ended = now
                self._all_ran.set()

        return noop

    async def wait_for_all(self) -> None:
        """Wait until all jobs have run."""
        while not self._all_ran.is_set():
            before = self._left
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._all_ran.wait()
            except TimeoutError:
                if self._left == before:
                    raise BrokerUnavailable(f"{before} of {self._jobs} jobs did not arrive from the broker") from None

    @property
    def run_a_second(self) -> float:
        assert self._began is not None
        # One job has ended when the measurement starts.
        return max(self._jobs - 1, 1) / max(self._ended - self._began, 1e-6)


@contextlib.asynccontextmanager
async def _working(
    url: str, state: str | None, queue: str, concurrency: int, measured: _Measured
) -> AsyncGenerator[None, None]:
    """Run a worker of the queue inside the block."""
    app = TaskMQ(url, state=state, name="taskmq bench")
    measured.define(app, queue)
    config = WorkerConfig(queues=(queue,), concurrency=concurrency, events="off", control=False, slow_loop_warning=0)
    worker = Worker(app, config)
    running = asyncio.create_task(worker.run())
    ready = asyncio.create_task(worker.is_ready.wait())
    try:
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield
    finally:
        ready.cancel()
        worker.requeue_now()
        await asyncio.wait((running, ready))


async def _latency(noop: AsyncTask[[float | None], None], plan: BenchPlan, measured: _Measured) -> Latency:
    loop = asyncio.get_running_loop()
    began, count = loop.time(), max(round(plan.rate * plan.seconds), 1)
    for number in range(count):
        await asyncio.sleep(max(began + number / plan.rate - loop.time(), 0))
        await noop.asend(perf_counter())
    deadline = loop.time() + _PATIENCE
    while len(measured.waits) < count and loop.time() < deadline:
        await asyncio.sleep(_BREATH)
    return _latency_of(measured.waits)


async def _round_trip(state: State) -> Latency:
    trips: list[float] = []
    for number in range(_LOOKS_AT_STATE):
        began = perf_counter()
        await state.results.get(f"taskmq.bench.{number}")
        trips.append(perf_counter() - began)
    return _latency_of(trips)


def _latency_of(seconds: list[float]) -> Latency:
    ordered = sorted(seconds) or [0.0]

    def share(of: float) -> float:
        return round(1000 * ordered[min(int(of * len(ordered)), len(ordered) - 1)], 3)

    return Latency(share(0.5), share(0.99))


async def _delete(app: TaskMQ, name: str) -> None:
    broker, queue = app.sessions.current().broker, WorkQueue(name)
    for physical in (*queue.physical, dead_letter_queue(name)):
        with contextlib.suppress(QueueMissing):
            if isinstance(broker, Deleting):
                await broker.delete(physical)
            else:
                await broker.purge(physical)
