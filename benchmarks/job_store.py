"""`python -m benchmarks.job_store`: jobs of the store, from their submission to their place in the history.

A PostgreSQL that does not wait for its disk, a RabbitMQ node, one scheduler and one worker process, all on this
machine; the sender is this process. Processor time is that of each, for one job.

    bulk      submitted a thousand at a time; jobs a second from the first submission to the last end
    submits   `asubmit` by one caller, and by 64 at a time: seconds until the job is kept
    starts    200 submissions a second: seconds from `asubmit` to the first line of the task
"""

import argparse
import asyncio
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import cpu_seconds, end, tree
from taskmq import TaskMQ
from tests.servers import PostgreSQL, RabbitMQ

__all__ = ["GOALS", "Stage", "main", "percentile"]

_CHUNK: Final = 1000
_CALLERS: Final = 64
_PACE: Final = 200.0
_PATIENCE: Final = 300.0
_QUEUE: Final = "work"
_APP: Final = """\
import os
import time

from taskmq import TaskMQ

app = TaskMQ(name="bench")
_starts = os.open("starts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="nothing", queue="work", retry=None)
async def nothing(number: int) -> None: ...


@app.task(name="stamp", queue="work", retry=None)
async def stamp(sent: int) -> None:
    os.write(_starts, b"%d\\n" % (time.time_ns() - sent))
"""

GOALS: Final = {"jobs a second": (12_000.0, True), "us a job": (130.0, False)}
"""What is aimed at, on two processors: a bound, and whether it is to be reached or not to be passed."""

Figures = dict[str, float]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many of all do not pass."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


@dataclass(frozen=True)
class Stage:
    """What runs, and the sender's app.

    Attributes:
        folder: where the tasks write.
        pids: of each part, the process whose tree it is.
    """

    app: TaskMQ
    folder: Path
    pids: dict[str, int]

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> "Generator[Stage]":
        """All of it, ready for work."""
        with contextlib.ExitStack() as stack:
            postgres, node = stack.enter_context(PostgreSQL()), stack.enter_context(RabbitMQ())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "bench.py").write_text(_APP, encoding="utf-8")
            store = postgres.create_database()
            settings = {"TASKMQ_URL": node.url, "TASKMQ_STORE": store, "TASKMQ_APP": "bench:app"}
            environment = {**os.environ, **settings}

            def command(*words: str) -> list[str]:
                return [sys.executable, "-m", "taskmq", "-q", *words]

            subprocess.run(command("store", "upgrade"), cwd=folder, env=environment, check=True, capture_output=True)
            pids = {
                "PostgreSQL": _postmaster(postgres),
                "RabbitMQ": int(re.findall(r"\d+", node.ctl("eval", "os:getpid()."))[0]),
            }
            for name, words in (("scheduler", ()), ("worker", ("--processes", "1", "--concurrency", "100"))):
                process = subprocess.Popen(command(name, *words), cwd=folder, env=environment)
                stack.callback(end, process)
                pids[name] = process.pid
            app = TaskMQ(node.url, store=store, name="sender")
            for task in ("nothing", "stamp"):
                app.task(name=task, queue=_QUEUE, retry=None)(_elsewhere)
            yield cls(app, folder, pids)

    def cpu(self) -> Figures:
        """Seconds that each part has used so far."""
        used = {name: cpu_seconds(tree([pid])) for name, pid in self.pids.items()}
        return {**used, "sender": time.process_time()}

    async def until_ended(self, job_ids: Sequence[str]) -> None:
        """Return once all of these are in the history."""
        async with asyncio.timeout(_PATIENCE):
            for job_id in reversed(job_ids):
                while not (await self.app.jobs.aget(job_id)).state.is_final:
                    await asyncio.sleep(0.01)


async def _bulk(stage: Stage, jobs: int) -> Figures:
    before, began = stage.cpu(), time.perf_counter()
    lasts: list[str] = []
    for first in range(0, jobs, _CHUNK):
        calls = [(number,) for number in range(first, min(first + _CHUNK, jobs))]
        lasts.append((await stage.app.jobs.asubmit_many("nothing", calls))[-1].id)
    submitted = time.perf_counter() - began
    await stage.until_ended(lasts)
    took, after = time.perf_counter() - began, stage.cpu()
    parts = {f"us a job: {name}": (after[name] - before[name]) / jobs * 1e6 for name in after}
    return {
        "jobs a second": jobs / took,
        "submitted a second": jobs / submitted,
        "us a job": sum(parts.values()),
        **parts,
    }


async def _submits(stage: Stage, jobs: int, *, callers: int) -> Figures:
    taken: list[float] = []
    last: list[str] = []

    async def call(count: int) -> None:
        job_id = ""
        for number in range(count):
            began = time.perf_counter()
            job_id = (await stage.app.jobs.asubmit("nothing", number)).id
            taken.append(time.perf_counter() - began)
        last.append(job_id)

    began = time.perf_counter()
    await asyncio.gather(*(call(max(jobs // callers, 1)) for _ in range(callers)))
    rate = len(taken) / (time.perf_counter() - began)
    await stage.until_ended(last)
    return {"a second": rate, "p50 ms": percentile(taken, 0.5) * 1e3, "p99 ms": percentile(taken, 0.99) * 1e3}


async def _starts(stage: Stage, jobs: int) -> Figures:
    path, loop = stage.folder / "starts", asyncio.get_running_loop()
    known = path.stat().st_size if path.exists() else 0
    began = loop.time()
    last = ""
    for number in range(jobs):
        await asyncio.sleep(max(began + number / _PACE - loop.time(), 0))
        last = (await stage.app.jobs.asubmit("stamp", time.time_ns())).id
    await stage.until_ended([last])
    async with asyncio.timeout(_PATIENCE):
        while len(told := path.read_bytes()[known:].split()) < jobs:
            await asyncio.sleep(0.05)
    waits = [int(each) / 1e6 for each in told]
    return {"p50 ms": percentile(waits, 0.5), "p99 ms": percentile(waits, 0.99)}


def _elsewhere(number: int) -> None:
    raise AssertionError(f"{number}: only the worker runs it")


def _postmaster(server: PostgreSQL) -> int:
    folder = server.sql("show data_directory")
    return int((Path(folder) / "postmaster.pid").read_text(encoding="ascii").split()[0])


def _text(name: str, values: Sequence[float]) -> str:
    middle = statistics.median(values)
    told = f"{middle:,.0f}" if middle >= 100 else f"{middle:.2f}"
    if name not in GOALS:
        return told
    bound, at_least = GOALS[name]
    is_met = middle >= bound if at_least else middle <= bound
    return f"{told} (goal {'at least' if at_least else 'at most'} {bound:,.0f}: {'met' if is_met else 'missed'})"


async def _measure(stage: Stage, jobs: int, rounds: int) -> dict[str, list[Figures]]:
    rows: dict[str, Callable[[], Coroutine[Any, Any, Figures]]] = {
        "bulk": lambda: _bulk(stage, jobs),
        "submits, 1 caller": lambda: _submits(stage, max(jobs // 20, 1), callers=1),
        f"submits, {_CALLERS} callers": lambda: _submits(stage, jobs, callers=_CALLERS),
        "starts, 200 a second": lambda: _starts(stage, max(jobs // 20, 1)),
    }
    found: dict[str, list[Figures]] = {}
    async with stage.app:
        await stage.until_ended([(await stage.app.jobs.asubmit("nothing", 0)).id])
        for _ in range(rounds):
            for name, row in rows.items():
                found.setdefault(name, []).append(await row())
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; medians of all rounds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.job_store", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of the bulk row; others follow from it")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    with Stage.opened() as stage:
        found = asyncio.run(_measure(stage, options.jobs, options.rounds))
    for name, rounds in found.items():
        print(name)
        for figure in rounds[0]:
            print(f"    {figure:24} {_text(figure, [each[figure] for each in rounds])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
