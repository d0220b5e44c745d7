"""Runner of the demo: start, send, wait, compare."""

import asyncio
import contextlib
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from taskmq.demo.measure import DemoTotals, FileReport, measure, source_files, totals
from taskmq.demo.stored import StoredFindings, use_the_store
from taskmq.demo.tasks import app, is_busy, measure_file, remind, summarise, tick
from taskmq.errors import ResultTimeout, TaskMQError
from taskmq.jobs.handle import Job, as_completed
from taskmq.model.keys import scheduled_job_id
from taskmq.model.states import JobState
from taskmq.operations.retention import Advance
from taskmq.schedules.triggers import instants_after

_PROCESSES: Final = 2
_REMIND_AFTER: Final = timedelta(seconds=2)
_TICKS: Final = 3
_INSTANTS: Final = 60
_PATIENCE: Final = "60s"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Check:
    """A single check of the demo."""

    what: str
    found: str
    is_right: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of the demo, and whether they are right."""

    totals: DemoTotals
    largest: list[tuple[str, int, str]]
    checks: list[Check]
    seconds: float

    @property
    def is_right(self) -> bool:
        return all(check.is_right for check in self.checks)


class Findings(NamedTuple):
    """Results from the workers: reports in file order, lateness of the reminder and of each tick in seconds, and the
    results of stored jobs.
    """

    reports: list[FileReport]
    summary: DemoTotals
    retried: int
    lateness: float
    ticks: list[float]
    stored: StoredFindings


def default_folder() -> Path:
    """Return the folder of the Python standard library."""
    return Path(sysconfig.get_path("stdlib"))


def run_demo(folder: Path, *, url: str | None, advance: Advance) -> Outcome:
    """Run the demo on the Python files below `folder`.

    Args:
        url: URL of a broker; None for an embedded one in a temporary folder.
        advance: called with the number of finished files and the total.

    Raises:
        TaskMQError: the demo could not be run.
    """
    files = source_files(folder.resolve())
    if not files:
        raise TaskMQError(f"{folder} contains no Python files")
    # The fan-in's message contains all reports, and stays well below every broker's limit.
    files = files[:5000]
    with tempfile.TemporaryDirectory(prefix="taskmq-demo-") as scratch:
        state = f"local://{scratch}/state" if url else f"local://{scratch}/queue"
        url = url or state
        store = f"sqlite:///{scratch}/jobs.db"
        app.sessions.configure(url=url, state=state, store=store, name="demo")
        return asyncio.run(_run(files, ["--url", url, "--state", state, "--store", store], Path(scratch), advance))


async def _run(files: Sequence[Path], places: Sequence[str], scratch: Path, advance: Advance) -> Outcome:
    started = time.monotonic()
    async with app, _services(places):
        sent_at = datetime.now(UTC)
        reminder = await remind.options(delay=_REMIND_AFTER).asend(sent_at + _REMIND_AFTER)
        jobs = await measure_file.asend_many([(path,) for path in files])
        gathered = asyncio.create_task(_gather(jobs, advance))
        # Meanwhile, do the same work without a queue in a thread of this process.
        expected = await asyncio.to_thread(lambda: [measure(path) for path in files])
        reports = await gathered
        summary = await (await summarise.asend(reports)).aresult(_PATIENCE)
        retried = await _count_retried(jobs)
        lateness = await reminder.aresult(_PATIENCE)
        ticks = await _collect_ticks()
        stored = await use_the_store(files, scratch)
    found = Findings(reports, summary, retried, lateness, ticks, stored)
    return Outcome(summary, _largest(reports), checks(found, files, expected), time.monotonic() - started)


def checks(found: Findings, files: Sequence[Path], expected: list[FileReport]) -> list[Check]:
    """Compare the results with a plain loop over the same files."""
    reports, summary, retried, lateness, ticks, stored = found
    count = len(stored.reports)
    changed = f"{stored.brought_forward} and {stored.cancelled}"
    busy = sum(map(is_busy, files))
    return [
        Check("each file's report equals the plain loop's", f"{len(reports)} reports", reports == expected),
        Check(
            "the fan-in's totals equal the plain loop's", f"{summary.tokens:,} tokens", summary == totals(expected)
        ),
        Check("busy files were retried, the others were not", f"{retried} retried", retried == busy),
        Check("the delayed task did not run early", f"{lateness * 1000:+.0f} ms", 0 <= lateness < 30),
        Check("the recurring task ran each second", f"{len(ticks)} ticks", len(ticks) == _TICKS and min(ticks) >= 0),
        Check(
            "jobs of the store gave the same results, and were listed",
            f"{stored.listed} listed",
            stored.reports == expected[:count] and stored.listed == count + 2 > 2,
        ),
        Check(
            "a waiting job was brought forward, another cancelled",
            changed,
            (stored.brought_forward, stored.cancelled) == (JobState.SUCCEEDED, JobState.CANCELLED),
        ),
        Check("a failed job was retried as another job", "succeeded" if stored.again else "no", stored.again),
    ]


async def _gather(jobs: Sequence[Job[FileReport]], advance: Advance) -> list[FileReport]:
    done = 0

    async def one(job: Job[FileReport]) -> FileReport:
        nonlocal done
        report = await job.aresult(_PATIENCE)
        done += 1
        advance(done, len(jobs))
        return report

    return await asyncio.gather(*(one(job) for job in jobs))


async def _count_retried(jobs: Sequence[Job[Any]]) -> int:
    """Count the jobs that needed more than one attempt."""
    records = await asyncio.gather(*(app.jobs.find_result(job.id) for job in jobs))
    return sum(record is not None and record.attempt > 1 for record in records)


async def _collect_ticks() -> list[float]:
    """Return the lateness of consecutive ticks in seconds, from the next one on."""
    instants = islice(instants_after(app.schedules[tick.name].trigger, app.sessions.clock.now_ms()), _INSTANTS)
    jobs = [scheduled_job_id(app.name, tick.name, instant) for instant in instants]
    try:
        # The scheduler may still be starting; earlier ticks are not caught up.
        begin = jobs.index(await _first_finished(jobs[:-_TICKS]))
        return [await app.job(job_id).aresult(_PATIENCE) for job_id in jobs[begin : begin + _TICKS]]
    except ResultTimeout:
        return []


async def _first_finished(jobs: Sequence[str]) -> str:
    finishing = aiter(as_completed(map(app.job, jobs), timeout=_PATIENCE))
    async with contextlib.aclosing(finishing) as finished:
        job, _ = await anext(finished)
        return job.id


def _largest(reports: Sequence[FileReport]) -> list[tuple[str, int, str]]:
    every = [(each.name, each.lines, report.path) for report in reports for each in report.largest]
    return sorted(every, key=lambda entry: -entry[1])[:5]


@contextlib.asynccontextmanager
async def _services(places: Sequence[str]) -> AsyncGenerator[None]:
    """Run a worker with two processes, and a scheduler."""
    command = [sys.executable, "-m", "taskmq", "--quiet", *places]
    target = "taskmq.demo.tasks:app"
    async with contextlib.AsyncExitStack() as stack:
        worker = [*command, "worker", target, "--processes", str(_PROCESSES), "--concurrency", "2", "--grace", "5s"]
        await stack.enter_async_context(_process(worker))
        await stack.enter_async_context(_process([*command, "scheduler", "--lifeline", target]))
        yield


@contextlib.asynccontextmanager
async def _process(command: Sequence[str]) -> AsyncGenerator[None]:
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()
