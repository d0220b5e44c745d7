"""Cost of recording a run of a sent job for each part, compared with the same queue without records."""

import asyncio
from typing import Final

from benchmarks.job_store.figures import Figures
from benchmarks.job_store.stage import Stage, us_a_job
from taskmq import WorkQueue

# In a file of its own: the queue's option is the app's.
_APP: Final = """
from taskmq import TaskMQ, WorkQueue

app = TaskMQ(name="bench", queues=[WorkQueue("sent", record={record!r})])


@app.task(name="nothing", queue="work", retry=None)
async def nothing(number: int) -> None: ...


@app.task(name="send", queue="sent", retry=None)
async def send(number: int) -> None: ...
"""
_PARTS: Final = ("worker", "RabbitMQ", "scheduler", "PostgreSQL")
_SIZE: Final = "select pg_total_relation_size('taskmq.sent_job')"
_COUNT: Final = "select count(*) from taskmq.sent_job"
_TOGETHER: Final = 500


async def send(stage: Stage, jobs: int, *, record: str) -> Figures:
    """Send jobs to a worker, and wait for their records; return each part's processor time, and what is stored."""
    (stage.folder / "bench.py").write_text(_APP.format(record=record), encoding="utf-8")
    stage.start("scheduler")
    stage.start("worker", "--processes", "1", "--concurrency", "100")
    await stage.warm()
    task = stage.app.task(name="send", queue="sent", retry=None)(_elsewhere)
    before = stage.cpu()
    for first in range(0, jobs, _TOGETHER):
        await task.asend_many((number,) for number in range(first, min(first + _TOGETHER, jobs)))
    await _until_done(stage, jobs if record == "all" else 0)
    return {
        **us_a_job(before, stage.cpu(), jobs),
        "rows": float(stage.sql(_COUNT)),
        "bytes": float(stage.sql(_SIZE)),
    }


def by_run(without: Figures, kept: Figures) -> Figures:
    """Return the difference of two such runs per run."""
    names = [f"us a job: {part}" for part in _PARTS]
    parts = {name.replace("a job", "a run"): kept[name] - without[name] for name in names}
    return {
        "us a run": sum(parts.values()),
        **parts,
        "us a job without": sum(without[name] for name in names),
        "bytes a run": kept["bytes"] / kept["rows"],
        "kept": kept["rows"],
    }


async def _until_done(stage: Stage, rows: int) -> None:
    """Wait until the queue is empty, and so many rows exist."""
    broker = stage.app.sessions.current().broker
    names = WorkQueue("sent").physical
    while any(each.ready or each.unsettled for each in await broker.stats(names)):
        await asyncio.sleep(0.05)
    while float(stage.sql(_COUNT)) < rows:
        await asyncio.sleep(0.1)


def _elsewhere(number: int) -> None:
    raise AssertionError(f"{number}: only the worker runs this task")
