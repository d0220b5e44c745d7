"""Command line of the benchmark: rows, sizes, and the file of results."""

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.job_store import loading
from benchmarks.job_store.batches import batches
from benchmarks.job_store.embedded import sqlite
from benchmarks.job_store.features import features
from benchmarks.job_store.figures import Figures, keep, text_of
from benchmarks.job_store.gated import gated
from benchmarks.job_store.lists import day_dropped, lists
from benchmarks.job_store.logged import by_line, talk
from benchmarks.job_store.machine import machine
from benchmarks.job_store.peers import compared
from benchmarks.job_store.recorded import by_run, send
from benchmarks.job_store.stage import DURABLE, Servers, Stage
from benchmarks.job_store.steps import saved_steps
from benchmarks.job_store.takeover import scheduler_killed
from benchmarks.job_store.tenants import drained
from benchmarks.job_store.throughput import bulk, starts, submits
from benchmarks.job_store.timers import lateness
from benchmarks.job_store.workflows import runs_of_workflows

RESULTS: Final = Path(__file__).parents[1] / "results" / "job_store.json"
_CALLERS: Final = 64
_FEW_TENANTS: Final = 10
_MANY_TENANTS: Final = 10_000

Found = dict[str, list[Figures]]


class _Run:
    """One run of the command."""

    def __init__(self, servers: Servers, options: argparse.Namespace) -> None:
        self._servers = servers
        self._options = options
        self.found: Found = {}

    def throughput(self) -> None:
        """Measure `bulk`, `submits` and `starts`."""
        jobs = self._options.jobs
        with Stage.opened(self._servers) as stage:
            stage.start_both()

            async def measure() -> None:
                async with stage.app:
                    await stage.warm()
                    for _ in range(self._options.rounds):
                        self._keep("bulk", await bulk(stage, jobs))
                        self._keep("submits, 1 caller", await submits(stage, max(jobs // 20, 1), callers=1))
                        self._keep(f"submits, {_CALLERS} callers", await submits(stage, jobs, callers=_CALLERS))
                        self._keep("starts", await starts(stage, max(jobs // 20, 1)))

            asyncio.run(measure())

    def lateness(self) -> None:
        with self._large("timers", loading.fill_timers) as stage:
            if self._options.load_only:
                return
            stage.start_both()

            async def measure() -> None:
                async with stage.app:
                    await stage.warm()
                    self._keep("lateness", await lateness(stage, seconds=self._options.seconds))

            asyncio.run(measure())

    def lists(self) -> None:
        """Measure `lists` and `day dropped`."""
        chance = random.Random(18)
        with self._large("history", loading.fill_history) as stage:
            if self._options.load_only:
                return

            async def measure() -> None:
                async with stage.app:
                    self._keep("lists", await lists(stage, each=self._options.lists, chance=chance))
                    days = await loading.days_there(stage)
                    self._keep("day dropped", await day_dropped(stage, keep=days - 1, chance=chance))

            asyncio.run(measure())

    def tenants(self) -> None:
        """Measure `tenants` on two stores, one after the other, each with its own scheduler."""
        costs: dict[int, Figures] = {}
        for count in (_FEW_TENANTS, _MANY_TENANTS):
            with Stage.opened(self._servers) as stage:

                async def measure(stage: Stage, count: int) -> Figures:
                    async with stage.app:
                        await loading.fill_tenants(stage, self._options.queued, tenants=count)
                        return await drained(stage, min(self._options.jobs * 2, self._options.queued))

                costs[count] = asyncio.run(measure(stage, count))
        cost = "us a job: dispatch"
        row = {"cost, 10,000 : 10 tenants": costs[_MANY_TENANTS][cost] / costs[_FEW_TENANTS][cost]}
        for count, figures in costs.items():
            row |= {f"{count:,} tenants, {name}": value for name, value in figures.items()}
        self._keep("tenants", row)

    def killed(self) -> None:
        for _ in range(self._options.rounds):
            with Stage.opened(self._servers) as stage:
                stage.start_both()
                stage.start("scheduler", name="second scheduler")

                async def measure(stage: Stage) -> Figures:
                    async with stage.app:
                        await stage.warm()
                        await stage.until_shared()
                        return await scheduler_killed(stage, pace=self._options.pace)

                self._keep("scheduler killed", asyncio.run(measure(stage)))

    def gated(self) -> None:
        for count in (1, self._options.gated):
            with Stage.opened(self._servers) as stage:

                async def measure(stage: Stage, count: int) -> Figures:
                    async with stage.app:
                        return await gated(stage, count)

                self._keep(f"behind a gate, {count:,} jobs", asyncio.run(measure(stage, count)))

    def logged(self) -> None:
        jobs = max(self._options.jobs // 20, 1)

        async def measure(stage: Stage, *options: str) -> Figures:
            async with stage.app:
                return await talk(stage, jobs, *options)

        for _ in range(self._options.rounds):
            with Stage.opened(self._servers) as stage:
                without = asyncio.run(measure(stage))
            with Stage.opened(self._servers) as stage:
                kept = asyncio.run(measure(stage, "--capture-logs", "info"))
            self._keep("logged", by_line(without, kept, jobs))

    def recorded(self) -> None:
        jobs = self._options.jobs

        async def measure(stage: Stage, record: str) -> Figures:
            async with stage.app:
                return await send(stage, jobs, record=record)

        for _ in range(self._options.rounds):
            with Stage.opened(self._servers) as stage:
                without = asyncio.run(measure(stage, "failures"))
            with Stage.opened(self._servers) as stage:
                kept = asyncio.run(measure(stage, "all"))
            self._keep("recorded", by_run(without, kept))

    def steps(self) -> None:
        for _ in range(self._options.rounds):
            with Stage.opened(self._servers) as stage:

                async def measure(stage: Stage) -> Figures:
                    async with stage.app:
                        return await saved_steps(stage)

                self._keep("saved steps", asyncio.run(measure(stage)))

    def workflows(self) -> None:
        """Measure runs of workflows: a chain, a wide step, many runs at once, and runs that sleep."""
        for _ in range(self._options.rounds):
            with Stage.opened(self._servers) as stage:

                async def measure(stage: Stage) -> dict[str, Figures]:
                    async with stage.app:
                        jobs, asleep = self._options.jobs, self._options.asleep
                        return await runs_of_workflows(
                            stage, width=max(jobs // 2, 1), runs=max(jobs // 20, 1), asleep=asleep or jobs
                        )

                for name, figures in asyncio.run(measure(stage)).items():
                    self._keep(f"workflow: {name}", figures)

    def features(self) -> None:
        """Measure jobs without a feature, and with each one."""
        for _ in range(self._options.rounds):
            with Stage.opened(self._servers) as stage:

                async def measure(stage: Stage) -> dict[str, Figures]:
                    async with stage.app:
                        return await features(stage, self._options.jobs)

                for name, figures in asyncio.run(measure(stage)).items():
                    self._keep(f"feature: {name}", figures)

    def batches(self) -> None:
        """Measure the store's part of a dispatch and of a batch of reports."""
        for _ in range(self._options.rounds):
            with Stage.opened(self._servers) as stage:

                async def measure(stage: Stage) -> Figures:
                    async with stage.app:
                        return await batches(stage, self._options.jobs)

                self._keep("batches", asyncio.run(measure(stage)))

    def embedded(self) -> None:
        for _ in range(self._options.rounds):
            self._keep("SQLite", asyncio.run(sqlite(self._options.jobs)))

    def peers(self) -> None:
        with Stage.opened(self._servers) as stage:
            stage.start_both()

            async def measure() -> None:
                async with stage.app:
                    await stage.warm()
                    for _ in range(self._options.rounds):
                        self._keep("peers", await compared(stage, self._servers, self._options.jobs))

            asyncio.run(measure())

    def _keep(self, name: str, figures: Figures) -> None:
        self.found.setdefault(name, []).append({**figures, **machine(self._servers.postgres)})

    def _large(self, name: str, fill: loading.Fill) -> contextlib.AbstractContextManager[Stage]:
        return loading.large_stage(self._servers, name, rows=self._options.rows, fill=fill)


ROWS: Final[dict[str, Callable[[_Run], None]]] = {
    "throughput": _Run.throughput,
    "lateness": _Run.lateness,
    "lists": _Run.lists,
    "tenants": _Run.tenants,
    "killed": _Run.killed,
    "gated": _Run.gated,
    "logged": _Run.logged,
    "recorded": _Run.recorded,
    "steps": _Run.steps,
    "workflows": _Run.workflows,
    "features": _Run.features,
    "batches": _Run.batches,
    "sqlite": _Run.embedded,
    "peers": _Run.peers,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print and save the figures."""
    options = _options(arguments)
    # On disk, unlike the files of tests, so that commits wait for the disk as in production.
    os.environ.setdefault("TASKMQ_TEST_ROOM", tempfile.gettempdir())
    settings = DURABLE if options.durable else {}
    with Servers.opened(settings) as servers:
        run = _Run(servers, options)
        for name in options.only:
            ROWS[name](run)
    print(text_of(run.found))
    if options.results is not None and run.found:
        given = sys.argv[1:] if arguments is None else arguments
        keep(options.results, run.found, " ".join(["python -m benchmarks.job_store", *given]))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.job_store")
    parser.add_argument("--only", nargs="+", choices=[*ROWS], default=["throughput"], help="default: throughput")
    parser.add_argument(
        "--jobs", type=int, default=20_000, help="jobs of the row bulk; other rows derive their numbers from it"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10_000_000, help="scheduled or ended jobs in the large databases")
    parser.add_argument("--queued", type=int, default=1_000_000, help="queued jobs of all tenants in the row tenants")
    parser.add_argument("--gated", type=int, default=10_000, help="jobs of a task with `concurrency=1`")
    parser.add_argument("--asleep", type=int, help="sleeping runs of the row workflows (default: --jobs)")
    parser.add_argument("--seconds", type=int, default=60, help="seconds of the row lateness")
    parser.add_argument("--lists", type=int, default=200, help="lists to read for each filter")
    parser.add_argument("--pace", type=float, default=1000.0, help="jobs per second while a scheduler is killed")
    parser.add_argument("--load-only", action="store_true", help="create the large databases without measuring")
    parser.add_argument(
        "--durable", action=argparse.BooleanOptionalAction, default=True, help="run PostgreSQL with fsync"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON file of the results; its other rows stay")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
