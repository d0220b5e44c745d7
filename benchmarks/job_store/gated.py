"""Cost of jobs that wait for a task with one run at a time: of moving them aside, and at rest."""

import asyncio
import time
from typing import Final

from benchmarks.job_store.figures import Figures
from benchmarks.job_store.stage import Stage, us_a_job
from taskmq.model.states import JobState
from taskmq_sql.jobs.codes import CODES

_TASK: Final = """

@app.task(name="alone", queue="alone", retry=None, concurrency=1)
async def alone(number: int) -> None: ...
"""
_AT_REST: Final = 10.0
_PATIENCE: Final = 120.0
# The scheduler may still be dispatching the first job while it moves the others aside.
_PLACED: Final = f"""
select (select count(*) from taskmq.gated)
     + (select count(*) from taskmq.job where state = {CODES[JobState.DISPATCHED]})"""
_STATEMENTS: Final = "select xact_commit from pg_stat_database where datname = current_database()"


async def gated(stage: Stage, jobs: int) -> Figures:
    """Start a scheduler with this many jobs in the store but no worker, so that all others wait for the first."""
    for first in range(0, jobs, 1000):
        calls = [(number,) for number in range(first, min(first + 1000, jobs))]
        await stage.app.jobs.asubmit_many("alone", calls)
    # Defined only for this row: a worker with limits needs a state.
    with (stage.folder / "bench.py").open("a", encoding="utf-8") as module:
        module.write(_TASK)
    stage.start("scheduler")
    before, began = stage.cpu(), time.perf_counter()
    async with asyncio.timeout(_PATIENCE):
        while int(stage.sql(_PLACED)) < jobs:
            await asyncio.sleep(0.05)
    took, cost = time.perf_counter() - began, us_a_job(before, stage.cpu(), jobs)
    await asyncio.sleep(1.0)
    rest, commits = stage.cpu(), int(stage.sql(_STATEMENTS))
    await asyncio.sleep(_AT_REST)
    still, last = stage.cpu(), int(stage.sql(_STATEMENTS))
    return {
        "seconds, with the scheduler's start": took,
        **cost,
        "scheduler at rest, ms a second": (still["scheduler"] - rest["scheduler"]) / _AT_REST * 1000,
        "commits a second at rest": (last - commits) / _AT_REST,
    }
