"""Sends a job for each border and failure to a worker, and checks the outcome."""

import asyncio
import contextlib
import sys
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Self

import pytest

from taskmq import EventStream, Job, JobEvent, TaskMQ
from taskmq.model.states import JobState
from taskmq.options.task_options import ExecutorKind
from taskmq.testing.store_run import StoreRun
from taskmq.worker import Worker, WorkerConfig
from tests.servers import until
from tests.unit.store_kit import Database, StagedStore
from tests.unit.worker.foreign_code import (
    FAILURES,
    FINE,
    HARMLESS,
    KEYED,
    RUNS,
    STARTS,
    app,
    borders_of,
    ordered_queue,
)

# Seconds, for all jobs of one worker.
_PATIENCE = 100


def watch_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let each run write a line into a file; return the file."""
    runs = folder / "runs"
    runs.touch()
    monkeypatch.setenv(RUNS, str(runs))
    # pytest's own hook cannot handle unreadable errors.
    monkeypatch.setattr(sys, "unraisablehook", _do_nothing)
    return runs


def _do_nothing(_: object) -> None: ...


@contextlib.asynccontextmanager
async def working(executor: ExecutorKind, *, stored: bool, url: str) -> AsyncGenerator[Worker]:
    """Run a worker of one executor's queue, and a scheduler if its jobs are in a store."""
    state = f"memory://{uuid.uuid4()}"
    database = Database()
    app.sessions.configure(url=url or state, state=state, store=None)
    app.sessions.job_store = (lambda _: StagedStore(database, clock=app.sessions.clock)) if stored else None
    config = WorkerConfig(
        queues=(executor, ordered_queue(executor)), concurrency=1, force=True, name="w", slow_loop_warning=0
    )
    worker = Worker(app, config, target="tests.unit.worker.foreign_code:app")
    running = asyncio.create_task(worker.run())
    moving: asyncio.Task[None] | None = None
    await worker.is_ready.wait()
    if stored:
        session = app.sessions.current()
        assert isinstance(session.store, StagedStore)
        moving = asyncio.create_task(_keep_moving(StoreRun(app, session, session.store, app.sessions.clock)))
    try:
        yield worker
    finally:
        if moving is not None:
            moving.cancel()
            await asyncio.wait((moving,))
        worker.requeue_now()
        await running
        app.sessions.job_store = None


async def _keep_moving(store: StoreRun) -> None:
    await store.start()
    while True:
        await store.step()
        await asyncio.sleep(0.005)


async def send(task: str, argument: object, *, stored: bool) -> Job[object]:
    called = app.tasks[task]
    return await (app.jobs.asubmit(called, argument) if stored else called.asend(argument))


class Stranger:
    """A program that knows only task names: it cannot compute the keys of their jobs."""

    def __init__(self) -> None:
        self.app = TaskMQ(app.sessions.url, state=app.sessions.state_url, name=app.name)
        self.app.sessions.job_store = app.sessions.job_store

    async def send(self, task: str, argument: dict[str, str] | str, *, queue: str, stored: bool) -> Job[object]:
        async def unknown(given: dict[str, str] | str) -> None: ...

        known = self.app.tasks
        called = known[task] if task in known else self.app.task(name=task, queue=queue, retry=None)(unknown)
        sent = await (self.app.jobs.asubmit(called, argument) if stored else called.asend(argument))
        return app.job(sent.id)


async def _send_to(border: str, executor: ExecutorKind, how: str, *, stranger: Stranger, stored: bool) -> Job[object]:
    name = f"{border}.{executor}"
    if border in KEYED:
        argument = {"how": how} if border == "template" else how
        return await stranger.send(name, argument, queue=executor, stored=stored)
    return await send(name, how, stored=stored)


class EventReader:
    """Reads the events of all jobs and the messages of their errors during its block."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self._events: EventStream | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        is_open = asyncio.Event()
        self._reading = asyncio.create_task(self._read(is_open))
        await is_open.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.wait((self._reading,))

    async def _read(self, is_open: asyncio.Event) -> None:
        async with app.events("job.#") as events:
            self._events = events
            is_open.set()
            async for event in events:
                if isinstance(event, JobEvent) and event.event in {"succeeded", "dead"}:
                    self.ends[event.job_id] += 1

    async def has(self, jobs: Iterable[Job[object]]) -> None:
        """Wait until each of these jobs has ended, according to events; lost events have to be counted as such."""
        wanted = {job.id for job in jobs}
        events = self._events
        assert events is not None

        def are_accounted_for() -> bool:
            return len(wanted - self.ends.keys()) <= events.dropped + events.missed

        await until(are_accounted_for, "each job's end is an event, or counted as a lost one")


async def check_every_border(executor: ExecutorKind, runs: Path, *, stored: bool, url: str = "") -> None:
    """Send a job for each border and failure, each followed by a working one, while a reader has all events.

    Args:
        runs: the file that each run writes a line into.
        stored: whether the jobs are stored jobs.
        url: of the broker; default: one in memory.
    """
    borders = borders_of(executor, stored=stored)
    expected = {
        (border, how): JobState.SUCCEEDED if border in HARMLESS else JobState.FAILED
        for border in borders
        for how in FAILURES
    }
    async with (
        asyncio.timeout(_PATIENCE),
        working(executor, stored=stored, url=url) as worker,
        EventReader() as reader,
    ):
        stranger = Stranger()
        async with stranger.app:
            jobs = {
                (border, how): await _send_to(border, executor, how, stranger=stranger, stored=stored)
                for border, how in expected
            }
        fine = [await send(FINE[executor].name, number, stored=stored) for number in range(len(jobs))]
        outcomes = {name: await job.aoutcome(timeout=_PATIENCE) for name, job in jobs.items()}
        assert [await job.aresult(timeout=_PATIENCE) for job in fine] == list(range(len(jobs)))
        assert worker.status().unsettled == 0
        await reader.has([*jobs.values(), *fine])
        assert set(reader.ends.values()) == {1}
    assert {name: outcome.state for name, outcome in outcomes.items()} == expected
    assert all(outcome.error is not None for name, outcome in outcomes.items() if name[0] not in HARMLESS)
    seen = Counter(line.partition(".")[0] for line in runs.read_text().splitlines())
    assert seen == Counter({border: STARTS.get(border, 1) * len(FAILURES) for border in borders})
