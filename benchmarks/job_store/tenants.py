"""Cost of dispatching a job with ten thousand waiting tenants, compared with ten."""

import asyncio
import time
from typing import Any, Final

from benchmarks.job_store.figures import Figures
from benchmarks.job_store.loading import connected
from benchmarks.job_store.stage import Stage

COUNTED: Final = ("PostgreSQL", "scheduler")
"""Whose processor time the dispatch is."""
_PATIENCE: Final = 300.0


async def drained(stage: Stage, jobs: int) -> Figures:
    """Start a scheduler and a worker on a full store, and return the cost of a job.

    Raises:
        RuntimeError: all jobs ended before the first poll.
    """
    stage.start("worker", "--processes", "1", "--concurrency", "100")
    stage.start("scheduler")
    async with connected(stage.store) as (connection,):
        began_with = await _left(connection)
        # Exclude startup and the first batches.
        await _until(connection, began_with - jobs // 10)
        before, began, first = stage.cpu(), time.perf_counter(), await _left(connection)
        if not first:
            raise RuntimeError(f"all {began_with} jobs ended before the first poll: queue more with --queued")
        # Count from the actual number, because many jobs end between two polls under load.
        await _until(connection, max(first - jobs, 0))
        after, took, last = stage.cpu(), time.perf_counter() - began, await _left(connection)
    done = first - last
    parts = {f"us a job: {name}": (after[name] - before[name]) / done * 1e6 for name in after}
    cost = sum(parts[f"us a job: {name}"] for name in COUNTED)
    return {"jobs/s": done / took, "us a job: dispatch": cost, **parts}


async def _left(connection: Any) -> int:
    return int(await connection.fetchval("select count(*) from taskmq.job"))


async def _until(connection: Any, left: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while await _left(connection) > left:
            await asyncio.sleep(0.5)
