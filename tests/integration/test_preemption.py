"""Preempted runs, from the submission of an urgent job to the end of the preempted one."""

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from taskmq import Context, Snooze, TaskMQ
from taskmq.model.jobs.pools import QueuePolicy
from taskmq.model.states import JobState
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from taskmq_local import forget_memory
from tests.servers.waiting import until

_PATIENCE = 60.0
_REASON = "preempted by pool acme"


@dataclass
class _Seen:
    """A record of runs: the start of each, and the reason of its preemption."""

    begun: list[tuple[str, int, object]] = field(default_factory=list[tuple[str, int, object]])
    reasons: list[str | None] = field(default_factory=list[str | None])


def _app(url: str, state: str, store: str, seen: _Seen) -> TaskMQ:
    app = TaskMQ(url, state=state, store=store, name="preemption")

    @app.task(name="crunch", queue="work", preemptible=True, retry=None)
    async def crunch(context: Context) -> int:
        await context.resume()
        done = context.last_checkpoint
        seen.begun.append(("crunch", context.attempt, done))
        if done is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.reasons.append(context.preempted)
                await context.acheckpoint(7)
                raise
        return int(done)

    @app.task(name="grind", queue="work", preemptible=True, retry=None)
    def grind(context: Context) -> int:
        done = context.last_checkpoint
        seen.begun.append(("grind", context.attempt, done))
        if done is None:
            never = threading.Event()
            while context.preempted is None and time.monotonic() < _ends:
                never.wait(0.01)
            seen.reasons.append(context.preempted)
            context.checkpoint(8)
            raise Snooze(0)
        return int(done)

    @app.task(name="urgent", queue="work", retry=None)
    async def urgent() -> None: ...

    _ends = time.monotonic() + _PATIENCE
    return app


@asynccontextmanager
async def _running(scheduler: Scheduler, worker: Worker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(scheduler.run())]

    async def is_ready() -> bool:
        return scheduler.not_ready() is None

    try:
        # So that it hears of the worker's slots at once, and not with the worker's next heartbeat.
        await until(is_ready)
        tasks.append(asyncio.create_task(worker.run()))
        yield
    finally:
        worker.requeue_now()
        scheduler.stop()
        await asyncio.wait(tasks)
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                task.result()


async def _expect_to_give_way(url: str, state: str, store: str) -> None:
    seen = _Seen()
    app = _app(url, state, store, seen)
    scheduler = Scheduler(_app(url, state, store, seen))
    worker = Worker(_app(url, state, store, seen), WorkerConfig(name="w", concurrency=2, grace=5))

    async with app, _running(scheduler, worker):
        await app.pools.aset("acme", min={"slots": 2})
        await app.pools.aset_policy("work", QueuePolicy(policy="fifo", preempt_after=0.0, preempt_grace=20.0))
        long = [await app.jobs.asubmit("crunch"), await app.jobs.asubmit("grind")]

        async def states(*ids: str) -> list[JobState]:
            return [(await app.jobs.aget(job)).state for job in ids]

        async def run() -> bool:
            return set(await states(*(job.id for job in long))) == {JobState.RUNNING}

        await until(run)
        # Together: the second of two consecutive ones could take the room reserved for the first.
        urgent = await app.jobs.asubmit_many(app.tasks["urgent"].options(tenant="acme"), [(), ()])

        async def have_ended() -> bool:
            return set(await states(*(job.id for job in (*long, *urgent)))) == {JobState.SUCCEEDED}

        await until(have_ended)
        assert [await job.aresult() for job in long] == [7, 8]
        for job in long:
            record = await app.jobs.aget(job.id)
            assert record.attempt == 1
            assert [one.state for one in await app.jobs.aattempts(job.id)] == [JobState.SUCCEEDED]
            events = await app.jobs.ahistory(job.id)
            assert [(event.kind, event.note) for event in events] == [
                ("preempt_requested", _REASON),
                ("preempted", _REASON),
            ]
    assert sorted(seen.begun, key=str) == [
        ("crunch", 1, 7),
        ("crunch", 1, None),
        ("grind", 1, 8),
        ("grind", 1, None),
    ]
    assert seen.reasons == [_REASON] * 2


@pytest.mark.nightly("tests/integration/test_preemption.py::test_a_run_is_preempted_on_real_servers")
@pytest.mark.timeout(120)
def test_a_preempted_run_resumes_where_it_was(tmp_path: Path) -> None:
    name = f"memory://{uuid.uuid4().hex}"

    try:
        asyncio.run(_expect_to_give_way(name, name, f"sqlite:///{tmp_path / 'jobs.db'}"))
    finally:
        forget_memory(name.removeprefix("memory://"))


@pytest.mark.rabbitmq
@pytest.mark.timeout(120)
def test_a_run_is_preempted_on_real_servers(amqp_url: str, job_store_url: str) -> None:
    name = uuid.uuid4().hex

    try:
        asyncio.run(_expect_to_give_way(amqp_url, f"memory://{name}", job_store_url))
    finally:
        forget_memory(name)
