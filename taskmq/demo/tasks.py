"""App of the demo."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from taskmq import Context, RetryPolicy, TaskMQ
from taskmq.demo.measure import DemoTotals, FileReport, measure, totals

BUSY_PERIOD = 20
"""One in this many files is "busy" at the first attempt."""

app = TaskMQ(name="demo")


class FileBusyError(Exception):
    """Raised when a file pretends to be in use."""


@app.task(queue="files", retry=RetryPolicy(max_attempts=3, base="250ms", jitter=False, on=(FileBusyError,)))
def measure_file(ctx: Context, path: Path) -> FileReport:
    """Measure a file; every twentieth file fails at its first attempt."""
    if ctx.attempt == 1 and is_busy(path):
        raise FileBusyError(str(path))
    return measure(path)


def is_busy(path: Path) -> bool:
    """Return whether the file pretends to be busy at first."""
    return hashlib.sha256(str(path).encode()).digest()[0] % BUSY_PERIOD == 0


@app.task(queue="reports", priority=9)
async def summarise(reports: list[FileReport]) -> DemoTotals:
    """Combine all reports into one summary."""
    return totals(reports)


@app.task(queue="reports")
async def remind(due: datetime) -> float:
    """Return how many seconds after `due` it ran."""
    return (datetime.now(UTC) - due).total_seconds()


@app.every("1s")
@app.task(queue="reports")
async def tick(ctx: Context) -> float:
    """Return how many seconds late it ran; due once a second."""
    assert ctx.scheduled_for is not None
    return (datetime.now(UTC) - ctx.scheduled_for).total_seconds()
