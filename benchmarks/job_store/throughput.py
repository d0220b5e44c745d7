"""Jobs through the whole system: in bulk, from many callers, and one by one at a steady rate."""

import asyncio
import time
from typing import Final

from benchmarks.job_store.figures import Figures, spread
from benchmarks.job_store.stage import Stage, us_a_job

_CHUNK: Final = 1000
_PACE: Final = 200.0
_PATIENCE: Final = 120.0


async def bulk(stage: Stage, jobs: int) -> Figures:
    """Submit a thousand jobs at a time and measure from the first submission to the last end."""
    written, before, began = stage.wal(), stage.cpu(), time.perf_counter()
    lasts: list[str] = []
    for first in range(0, jobs, _CHUNK):
        calls = [(number,) for number in range(first, min(first + _CHUNK, jobs))]
        lasts.append((await stage.app.jobs.asubmit_many("nothing", calls))[-1].id)
    submitted = time.perf_counter() - began
    await stage.until_ended(lasts)
    took = time.perf_counter() - began
    cost = us_a_job(before, stage.cpu(), jobs)
    wal = (stage.wal() - written) / jobs
    return {"jobs/s": jobs / took, "submitted/s": jobs / submitted, **cost, "WAL bytes a job": wal}


async def submits(stage: Stage, jobs: int, *, callers: int) -> Figures:
    """Measure `asubmit` by concurrent callers: the time until each job is committed."""
    taken: list[float] = []
    lasts: list[str] = []

    async def call(count: int) -> None:
        job_id = ""
        for number in range(count):
            began = time.perf_counter()
            job_id = (await stage.app.jobs.asubmit("nothing", number)).id
            taken.append(time.perf_counter() - began)
        lasts.append(job_id)

    before, began = stage.cpu(), time.perf_counter()
    await asyncio.gather(*(call(max(jobs // callers, 1)) for _ in range(callers)))
    submitted = time.perf_counter() - began
    await stage.until_ended(lasts)
    took = time.perf_counter() - began
    cost = us_a_job(before, stage.cpu(), len(taken))
    return {"submitted/s": len(taken) / submitted, **spread(taken), "jobs/s": len(taken) / took, **cost}


async def starts(stage: Stage, jobs: int) -> Figures:
    """Measure the time from `asubmit` to the start of the task, at 200 submissions a second into an idle system."""
    skip, loop = stage.written(), asyncio.get_running_loop()
    before, began = stage.cpu(), loop.time()
    for number in range(jobs):
        await asyncio.sleep(max(began + number / _PACE - loop.time(), 0))
        await stage.app.jobs.asubmit("stamp", time.time_ns())
    async with asyncio.timeout(_PATIENCE):
        while len(found := stage.starts(skip=skip)) < jobs:
            await asyncio.sleep(0.05)
    return {**spread([start.late for start in found]), **us_a_job(before, stage.cpu(), jobs)}
