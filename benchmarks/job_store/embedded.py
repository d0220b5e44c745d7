"""One process with a SQLite file: the store alone, and the sender with a scheduler and a worker."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from benchmarks.job_store.figures import Figures
from taskmq import TaskMQ
from taskmq.contracts.jobs import Lane, Pick, partition_key
from taskmq.model.jobs.reports import Report
from taskmq.scheduler import Scheduler
from taskmq.worker.config import WorkerConfig
from taskmq.worker.worker import Worker

_BATCH: Final = 500
_PATIENCE: Final = 120.0
_LANE: Final = Lane("work", 4, "")


async def sqlite(jobs: int) -> Figures:
    """Measure submitting, dispatching and reporting in the store, 500 at a time; then a whole app on `memory://`."""
    with tempfile.TemporaryDirectory(prefix="taskmq-bench-") as folder:
        alone = await _store_alone(Path(folder) / "alone.db", jobs)
        whole = await _whole(Path(folder) / "whole.db", jobs)
    return {**alone, **whole}


async def _store_alone(path: Path, jobs: int) -> Figures:
    app = TaskMQ("memory://bench-store", store=f"sqlite:///{path}", name="bench")

    @app.task(name="nothing", queue=_LANE.queue, retry=None)
    async def nothing(number: int) -> None: ...

    async with app:
        store = app.sessions.store()
        await store.check()
        partition = store.dispatching.partition_of("work")
        epoch = await store.dispatching.leases.acquire(partition_key(partition), owner="bench", seconds=3600)
        assert isinstance(epoch, int)
        began, cpu = time.perf_counter(), time.process_time()
        for first in range(0, jobs, _BATCH):
            await _life(app, partition, epoch, min(_BATCH, jobs - first))
        took, used = time.perf_counter() - began, time.process_time() - cpu
    return {"jobs/s": jobs / took, "us a job": used / jobs * 1e6}


async def _life(app: TaskMQ, partition: int, epoch: int, count: int) -> None:
    store = app.sessions.store()
    await app.jobs.asubmit_many("nothing", [(number,) for number in range(count)])
    batch = await store.dispatching.dispatch(partition, epoch, [Pick(_LANE, count)])
    assert batch is not None
    assert len(batch.jobs) == count
    await store.dispatching.confirm([batch.id])
    now = time.time_ns() // 1_000_000
    await store.dispatching.apply(
        [
            Report(id=job.id, token=job.token, kind="succeeded", started=now, ran=1, worker="bench")
            for job in batch.jobs
        ]
    )
    await store.dispatching.forget([batch.id])


async def _whole(path: Path, jobs: int) -> Figures:
    app = TaskMQ(f"memory://{path.parent.name}", store=f"sqlite:///{path}", name="bench")
    ended = 0
    everything = asyncio.Event()

    async def nothing(number: int) -> None:
        nonlocal ended
        ended += 1
        if ended >= jobs:
            everything.set()

    app.task(name="nothing", queue="work", retry=None)(nothing)
    async with _running(app):
        began, cpu = time.perf_counter(), time.process_time()
        for first in range(0, jobs, _BATCH):
            await app.jobs.asubmit_many("nothing", [(number,) for number in range(first, min(first + _BATCH, jobs))])
        async with asyncio.timeout(_PATIENCE):
            await everything.wait()
        took, used = time.perf_counter() - began, time.process_time() - cpu
    return {"whole jobs/s": jobs / took, "whole, us a job": used / jobs * 1e6}


@contextlib.asynccontextmanager
async def _running(app: TaskMQ) -> AsyncGenerator[None]:
    config = WorkerConfig(events="off", control=False, slow_loop_warning=0, concurrency=100)
    scheduler, worker = Scheduler(app), Worker(app, config)
    dispatching, working = (asyncio.create_task(each.run()) for each in (scheduler, worker))
    try:
        await worker.is_ready.wait()
        yield
    finally:
        # Stop one after the other, because either closes the app's connections.
        scheduler.stop()
        await dispatching
        worker.drain()
        await working
        await app.aclose()
