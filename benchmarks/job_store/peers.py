"""Comparison with PgQueuer, Procrastinate and Oban for Python on the same PostgreSQL at the same time.

Their workers fetch jobs from the database; taskmq's jobs pass a scheduler and RabbitMQ. All jobs do the same: they
write two numbers to a file.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.contender import PEERS
from benchmarks.failures import RunFailed
from benchmarks.job_store.figures import Figures, spread
from benchmarks.job_store.stage import Servers, Stage, Start, starts_in
from benchmarks.processes import end
from benchmarks.provision import environment_of
from tests.interpreters import interpreter

_PATIENCE: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Library:
    """A peer.

    Attributes:
        python: the oldest supported version of Python, if the one of taskmq may be older.
        share: fraction of taskmq's number of jobs, smaller for slow libraries.
    """

    name: str
    script: str
    requires: tuple[str, ...]
    python: str = ""
    share: float = 1.0


CONTENDERS: Final = (
    _Library("PgQueuer", "jobs_pgqueuer.py", ("pgqueuer[asyncpg]==1.6.0",)),
    _Library("Procrastinate", "jobs_procrastinate.py", ("procrastinate==3.10.0",), share=0.05),
    _Library("Oban", "jobs_oban.py", ("oban==0.7.0",), python="3.12", share=0.2),
)


async def compared(stage: Stage, servers: Servers, jobs: int) -> Figures:
    """Measure taskmq, then each peer. A peer that cannot be installed or fails is reported and skipped."""
    figures = {f"{name}: taskmq": value for name, value in (await _ours(stage, jobs)).items()}
    for library in CONTENDERS:
        try:
            found = _theirs(library, servers, max(round(jobs * library.share), 200))
        except RunFailed as error:
            print(error, file=sys.stderr)
            continue
        figures |= {f"{name}: {library.name}": value for name, value in found.items()}
        for name in ("one by one", "bulk", "drain"):
            figures[f"{name} : {library.name}"] = figures[f"{name}, jobs/s: taskmq"] / found[f"{name}, jobs/s"]
        figures[f"latency : {library.name}"] = figures["latency p50 ms: taskmq"] / found["latency p50 ms"]
    return figures


async def _ours(stage: Stage, jobs: int) -> Figures:
    submit, loop = stage.app.jobs.asubmit, asyncio.get_running_loop()
    scheduler = stage.pids["scheduler"]
    few = max(jobs // 20, 100)
    # Start the scheduler later: nothing may be dispatched while submissions are measured.
    os.kill(scheduler, signal.SIGSTOP)
    began = time.perf_counter()
    for _ in range(few):
        await submit("stamp", time.time_ns())
    one = few / (time.perf_counter() - began)
    began = time.perf_counter()
    for first in range(0, jobs, 1000):
        await stage.app.jobs.asubmit_many("stamp", [(time.time_ns(),)] * min(1000, jobs - first))
    bulk = jobs / (time.perf_counter() - began)
    skip = stage.written()
    os.kill(scheduler, signal.SIGCONT)
    while stage.started(skip=skip) < jobs + few:
        await asyncio.sleep(0.05)
    drain = _rate(stage.starts(skip=skip))
    await stage.until_empty()
    skip, began = stage.written(), loop.time()
    for number in range(few):
        await asyncio.sleep(max(began + number / 200 - loop.time(), 0))
        await submit("stamp", time.time_ns())
    while stage.started(skip=skip) < few:
        await asyncio.sleep(0.05)
    return _figures(one, bulk, drain, stage.starts(skip=skip))


def _theirs(library: _Library, servers: Servers, jobs: int) -> Figures:
    database = servers.postgres.create_database()
    starts = Path(tempfile.gettempdir()) / f"taskmq-bench-starts-{os.getpid()}"
    starts.unlink(missing_ok=True)
    few = max(jobs // 20, 100)
    python = str(environment_of(library.name, library.requires, _interpreter(library)) / "python")
    settings = {**os.environ, "BENCH_DATABASE": database, "BENCH_STARTS": str(starts)}
    settings.pop("PYTHONPATH", None)

    def argv(*words: str) -> list[str]:
        return [python, str(PEERS / library.script), *words]

    def run_script(*words: str) -> dict[str, float]:
        done = subprocess.run(
            argv(*words), env=settings, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
        if done.returncode:
            raise RunFailed(f"{library.name} {' '.join(words)}: {done.stderr[-2000:]}")
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
        return figures

    try:
        run_script("setup")
        one = few / run_script("one", "--count", str(few))["seconds"]
        bulk = jobs / run_script("bulk", "--count", str(jobs))["seconds"]
        with _worker(argv("work"), settings):
            _until(starts, few + jobs, library.name)
            drain = _rate(starts_in(starts.read_bytes()))
            run_script("paced", "--count", str(few))
            _until(starts, few * 2 + jobs, library.name)
            found = starts_in(starts.read_bytes())[few + jobs :]
    finally:
        starts.unlink(missing_ok=True)
        servers.postgres.drop_database(database)
    return _figures(one, bulk, drain, found)


def _interpreter(library: _Library) -> str:
    if not library.python:
        return ""
    if (found := interpreter(library.python)) is None:
        raise RunFailed(f"{library.name} needs Python {library.python}: install it")
    return str(found)


@contextlib.contextmanager
def _worker(argv: list[str], settings: dict[str, str]) -> Generator[None]:
    process = subprocess.Popen(argv, env=settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        end(process, patience=2.0)


def _until(starts: Path, count: int, name: str) -> None:
    until = time.monotonic() + _PATIENCE
    while not starts.exists() or starts.read_bytes().count(b"\n") < count:
        if time.monotonic() > until:
            raise RunFailed(f"{name}: its worker did not run {count} jobs within {_PATIENCE:.0f} s")
        time.sleep(0.05)


def _rate(found: list[Start]) -> float:
    """Return the starts in a second, from the first to the last."""
    return len(found) / ((found[-1].at - found[0].at) / 1e9)


def _figures(one: float, bulk: float, drain: float, found: list[Start]) -> Figures:
    times = spread([start.late for start in found])
    return {
        "one by one, jobs/s": one,
        "bulk, jobs/s": bulk,
        "drain, jobs/s": drain,
        **{f"latency {name}": value for name, value in times.items()},
    }
