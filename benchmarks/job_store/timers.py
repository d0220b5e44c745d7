"""Lateness of scheduled jobs among millions that are due later."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from benchmarks.job_store.figures import Figures, percentile, spread
from benchmarks.job_store.loading import connected, fill_soon
from benchmarks.job_store.stage import Stage, us_a_job
from benchmarks.processes import resident_mb

_FIRES: Final = 500
_CHANGES: Final = 100.0
_CANCELS: Final = 100.0
_BEFORE: Final = 8.0
_LAST: Final = """
select t.id from unnest($1::smallint[]) as s(shard) cross join lateral
  (select id from taskmq.timer where shard = s.shard order by shard desc, due desc limit $2) t"""
_DISPATCHED: Final = """
select dispatched - due as late from taskmq.job_history where due >= $1 and dispatched is not null"""
_PATIENCE: Final = 120.0


async def lateness(stage: Stage, *, seconds: int, fires: int = _FIRES) -> Figures:
    """Measure lateness while 500 jobs become due, 100 others are changed and 100 are cancelled per second.

    Lateness is the time from the due instant to the first line of the task, including dispatch and delivery to the
    worker. The figures `dispatch` end at the statement that dispatches the job, by the store's clock.
    """
    others = await _waiting(stage, round(seconds * (_CHANGES + _CANCELS)))
    skip = stage.written()
    first = await fill_soon(stage, rate=fires, seconds=seconds, after=_BEFORE)
    await asyncio.sleep(max(first / 1000 - time.time(), 0))
    before = stage.cpu()
    half = round(seconds * _CHANGES)
    changed, cancelled = await asyncio.gather(
        paced(_CHANGES, others[:half], lambda job_id: stage.app.jobs.achange(job_id, delay="20d")),
        paced(_CANCELS, others[half:], stage.app.jobs.acancel),
    )
    async with asyncio.timeout(_PATIENCE + seconds):
        while len(found := stage.starts(skip=skip)) < fires * seconds:
            await asyncio.sleep(0.1)
        dispatched = await _dispatched(stage, first, fires * seconds)
    late = [start.late for start in found]
    return {
        **spread(late),
        "dispatch p50 ms": percentile(dispatched, 0.5) * 1e3,
        "dispatch p99 ms": percentile(dispatched, 0.99) * 1e3,
        "earliest ms": min(late) * 1e3,
        "latest ms": max(late) * 1e3,
        "change p50 ms": percentile(changed, 0.5) * 1e3,
        "change p99 ms": percentile(changed, 0.99) * 1e3,
        "cancel p50 ms": percentile(cancelled, 0.5) * 1e3,
        "cancel p99 ms": percentile(cancelled, 0.99) * 1e3,
        "scheduler MB": resident_mb([stage.pids["scheduler"]]),
        **us_a_job(before, stage.cpu(), fires * seconds),
    }


async def _dispatched(stage: Stage, first: int, count: int) -> list[float]:
    """Wait until all jobs have ended, and return the lateness of each dispatch in seconds."""
    async with connected(stage.store) as (connection,):
        while len(rows := await connection.fetch(_DISPATCHED, first)) < count:
            await asyncio.sleep(0.5)
    return [row["late"] / 1000 for row in rows]


async def paced(rate: float, job_ids: Sequence[str], work: Callable[[str], Awaitable[object]]) -> list[float]:
    """Do `work` on the jobs in turn at a steady rate, and return the seconds that each call took."""
    loop = asyncio.get_running_loop()
    taken: list[float] = []
    began = loop.time()
    for number, job_id in enumerate(job_ids):
        await asyncio.sleep(max(began + number / rate - loop.time(), 0))
        at = time.perf_counter()
        await work(job_id)
        taken.append(time.perf_counter() - at)
    return taken


async def _waiting(stage: Stage, count: int) -> list[str]:
    """Return ids of jobs that are due on another day."""
    async with connected(stage.store) as (connection,):
        rows = await connection.fetch(_LAST, list(range(64)), count // 16)
    found = [str(row["id"]) for row in rows]
    random.shuffle(found)
    return found[:count]
