"""A worker and a beat that run until nothing moves, on a clock that stands still."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from copy import copy
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.beat import Beat
from taskmq.contracts.broker import Broker, QueueStats
from taskmq.stored_jobs import Jobs
from taskmq.tasks.task import Task
from taskmq.testing.fake_clock import FakeClock
from taskmq.testing.store_run import FailedRun, StoreRun
from taskmq.worker import Worker, WorkerConfig

# Turns of the loop without a change that count as rest: work without threads takes a few each.
_TURNS: Final = 20
_LOOKS: Final = 3
_BREATH: Final = 0.0005


class _Beat(Beat):
    """A beat that reports when it is due; its periodic looks need no stop of the clock."""

    @property
    def next_due(self) -> int | None:
        return self._due[0][0] if self._due else None


class VirtualRun:
    """Runs the worker, and optionally a beat, of an app under test."""

    def __init__(
        self,
        app: TaskMQ,
        broker: Broker,
        worker: Worker,
        clock: FakeClock,
        *,
        activity: Callable[[], int],
        store: StoreRun | None,
    ) -> None:
        self._app = app
        self._broker = broker
        self._worker = worker
        self._clock = clock
        self._activity = activity
        self._store = store
        self._names = [name for queue in worker.queues for name in queue.physical]
        self.beat: _Beat | None = None
        self.beat_clock: FakeClock | None = None

    async def rest(self) -> list[QueueStats]:
        """Wait until nothing moves; what is left waits for its time."""
        seen: object = None
        looks = 0
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._store is not None:
                await self._store.step()
            stats = await self._broker.stats(self._names)
            running = self._worker.running or self._worker.is_telling
            running = running or (self._store is not None and self._store.is_starting)
            now = (
                stats,
                self._activity(),
                0 if self._store is None else self._store.moved,
                None if self.beat is None else self.beat.next_due,
                self._clock.next_instant,
            )
            looks = looks + 1 if now == seen and not running else 0
            if looks >= _LOOKS:
                return stats
            seen = now
            if running:
                # Threads need the interpreter.
                await asyncio.sleep(_BREATH)

    async def waiting(self) -> int:
        """Return how many jobs wait for their time."""
        stats = await self.rest()
        jobs = sum((each.delayed or 0) + (each.unsettled or 0) for each in stats)
        if self._app.sessions.delay == "state":
            jobs += len(await self._app.jobs.alist_waiting(limit=1))
        return jobs if self._store is None else jobs + await self._store.waiting()

    async def next_instant(self) -> int | None:
        """Return the next due time; None: never."""
        now = self._clock.now_ms()
        instants = (
            self._clock.next_instant,
            None if self.beat is None else self.beat.next_due,
            None if self._store is None else await self._store.next_due(),
        )
        return min((instant for instant in instants if instant is not None and instant > now), default=None)

    def move_to(self, instant: int) -> None:
        """Set the clock to `instant`, unless it is later already."""
        step = timedelta(milliseconds=max(instant - self._clock.now_ms(), 0))
        for clock in (self._clock, self.beat_clock):
            if clock is not None:
                clock.advance(step)


@asynccontextmanager
async def virtual_run(
    app: TaskMQ,
    clock: FakeClock,
    *,
    queues: Iterable[str],
    activity: Callable[[], int],
    failed: list[FailedRun],
    with_beat: bool,
) -> AsyncGenerator[VirtualRun, None]:
    """Run a worker for all of the app's queues and `queues`, a scheduler if there is a store, and a beat.

    All of them end with the block.

    Args:
        failed: receives the failed jobs of the store.
        activity: returns a number that changes with events missing from the broker's statistics.
    """
    worker_app = _with_own_connections(app)
    worker_app.tasks = app.tasks.with_tasks({name: _for_thread(task) for name, task in app.tasks.items()})
    names = dict.fromkeys([*(queue.name for queue in app.tasks.queues), *queues])
    config = WorkerConfig(
        queues=tuple(names), force=True, events="off", control=False, slow_loop_warning=0, name="test", prefetch=32
    )
    worker = Worker(worker_app, config)
    jobs = [asyncio.create_task(worker.run())]
    session = app.sessions.current()
    store = None
    if session.store is not None:
        store = StoreRun(app, session, session.store, clock, fires=with_beat)
        # As in production with a store, a beat is needed for reactions only.
        with_beat = with_beat and any(each.needs_beat for each in app.reactions.values())
    virtual = VirtualRun(app, session.broker, worker, clock, activity=activity, store=store)
    try:
        await _wait_ready(worker.is_ready.wait(), jobs)
        if store is not None:
            await store.start()
        if with_beat:
            virtual.beat_clock = FakeClock(clock.now_ms())
            beat_app = _with_own_connections(app)
            beat_app.sessions.clock = virtual.beat_clock
            virtual.beat = _Beat(beat_app)
            jobs.append(asyncio.create_task(virtual.beat.run()))
        yield virtual
    finally:
        if store is not None:
            failed += store.failed
            await store.stop()
        worker.requeue_now()
        if virtual.beat is not None:
            virtual.beat.stop()
        await asyncio.gather(*jobs, return_exceptions=True)
    for job in jobs:
        job.result()


def _with_own_connections(app: TaskMQ) -> TaskMQ:
    """Return the same app with separate connections, which its runner may close."""
    twin = copy(app)
    twin.sessions, twin.producer = copy(app.sessions), copy(app.producer)
    twin.sessions.exchange(app.sessions.settings, app.sessions.clock, {})
    twin.producer.sessions = twin.sessions
    twin.jobs = Jobs(twin.sessions, tasks=app.tasks)
    twin.jobs.use_producer(twin.producer)
    return twin


async def _wait_ready(ready: Coroutine[Any, Any, object], jobs: list[asyncio.Task[None]]) -> None:
    """Wait until it is ready, or raise the error that prevented it."""
    waiting = asyncio.ensure_future(ready)
    await asyncio.wait([waiting, *jobs], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for job in jobs:
        if job.done():
            job.result()


def _for_thread(task: Task[..., Any]) -> Task[..., Any]:
    """Return the task for a thread: another process would lack the app and the test's replacements."""
    if task.plan.executor != "process":
        return task
    twin = copy(task)
    twin.plan = replace(task.plan, executor="thread")
    return twin
