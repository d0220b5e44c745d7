"""Kill of a scheduler while jobs arrive at a steady rate: lost jobs, jobs run twice, and the takeover's delay."""

import asyncio
import os
import signal
import time
from collections import Counter
from typing import Any, Final

from benchmarks.job_store.figures import Figures
from benchmarks.job_store.loading import connected
from benchmarks.job_store.stage import QUEUE, Stage
from taskmq.contracts.jobs import partition_key

_BEFORE: Final = 1.0
_AFTER: Final = 8.0
_PATIENCE: Final = 120.0


async def scheduler_killed(stage: Stage, *, pace: float) -> Figures:
    """Kill (-9) the one of two schedulers that holds the queue's partition, and measure the takeover.

    The takeover's delay is the time from the end of the dead scheduler's lease to the next start of a job.
    """
    store = stage.app.sessions.store()
    key = partition_key(store.dispatching.partition_of(QUEUE))
    skip, loop = stage.written(), asyncio.get_running_loop()
    count = round((_BEFORE + _AFTER) * pace)
    sent: list[int] = []

    async def submit() -> None:
        began = loop.time()
        for number in range(count):
            await asyncio.sleep(max(began + number / pace - loop.time(), 0))
            sent.append(time.time_ns())
            calls.append(loop.create_task(stage.app.jobs.asubmit("stamp", sent[-1])))
        await asyncio.gather(*calls)

    calls: list[asyncio.Task[Any]] = []
    submitting = asyncio.create_task(submit())
    await asyncio.sleep(_BEFORE)
    async with connected(stage.store) as (connection,):
        holder = await connection.fetchval("select holder from taskmq.lease where key = $1", key)
        killed = int(holder.split(":")[1])
        os.kill(killed, signal.SIGKILL)
        row = await connection.fetchrow(
            "select expires, expires - floor(extract(epoch from clock_timestamp()) * 1000) as left "
            "from taskmq.lease where key = $1",
            key,
        )
        await submitting
        async with asyncio.timeout(_PATIENCE):
            while await connection.fetchval("select exists (select from taskmq.job)"):
                await asyncio.sleep(0.05)
    found = stage.starts(skip=skip)
    expires = int(row["expires"]) * 1_000_000
    first = min(start.at for start in found if start.at >= expires)
    times = Counter(start.sent for start in found)
    return {
        "jobs": float(count),
        "lost": float(len(set(sent) - times.keys())),
        "ran twice": float(sum(number - 1 for number in times.values())),
        "lease left, s": float(row["left"]) / 1000,
        "taken over after, s": (first - expires) / 1e9,
    }
