"""Cost of a line of a job's log for each part, compared with a worker that stores no lines."""

import subprocess
from typing import Final

from benchmarks.job_store.figures import Figures
from benchmarks.job_store.stage import Stage, us_a_job

# Enough lines to make costs that grow with run time, such as polling, negligible.
_LINES: Final = 200
# Both workers call the logger and write to their console, so neither cost is in the difference.
_TASK: Final = f"""
import logging

log = logging.getLogger("bench")
log.setLevel(logging.INFO)


@app.task(name="talk", queue="work", retry=None)
async def talk(number: int) -> None:
    for line in range({_LINES}):
        log.info("order %d of customer %d: %d of {_LINES} items were charged", number, number % 97, line)
"""
_PARTS: Final = ("worker", "RabbitMQ", "scheduler", "PostgreSQL")
_SIZE: Final = "select pg_total_relation_size('taskmq.job_log')"
_COUNT: Final = "select count(*) from taskmq.job_log"


async def talk(stage: Stage, jobs: int, *options: str) -> Figures:
    """Run jobs that log on a worker with these options; return each part's processor time, and what is stored."""
    with (stage.folder / "bench.py").open("a", encoding="utf-8") as module:
        module.write(_TASK)
    stage.start("scheduler")
    stage.start("worker", "--processes", "1", "--concurrency", "100", *options, errors=subprocess.DEVNULL)
    await stage.warm()
    before = stage.cpu()
    calls = [(number,) for number in range(jobs)]
    lasts = [
        (await stage.app.jobs.asubmit_many("talk", calls[first : first + 1000]))[-1].id
        for first in range(0, jobs, 1000)
    ]
    await stage.until_ended(lasts)
    await stage.until_empty()
    return {
        **us_a_job(before, stage.cpu(), jobs),
        "lines": float(stage.sql(_COUNT)),
        "bytes": float(stage.sql(_SIZE)),
    }


def by_line(without: Figures, kept: Figures, jobs: int) -> Figures:
    """Return the difference of two such runs per line."""
    names = [f"us a job: {part}" for part in _PARTS]
    parts = {name.replace("a job", "a line"): (kept[name] - without[name]) / _LINES for name in names}
    return {
        "us a line": sum(parts.values()),
        **parts,
        "bytes a line": kept["bytes"] / kept["lines"] if kept["lines"] else 0.0,
        "kept, of 100 lines": kept["lines"] / (jobs * _LINES) * 100,
    }
