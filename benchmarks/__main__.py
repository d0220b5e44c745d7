"""`python -m benchmarks`: run the contenders in turns and write `benchmarks/results/`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cell import Cell
from benchmarks.contender import WORK, Contender
from benchmarks.contenders import CONTENDERS
from benchmarks.failures import RunFailed
from benchmarks.goals import judge
from benchmarks.ground import Ground
from benchmarks.pace import Pace, clock_text
from benchmarks.plan import KINDS, Job, plan
from benchmarks.provision import environment
from benchmarks.report import goals_table, plot, write

RESULTS = Path(__file__).parent / "results"
# A stalled peer costs half a minute each time, so a cell is skipped after this many failures.
_TRIES = 2


def main() -> int:
    arguments = _arguments()
    chosen = [each for each in CONTENDERS if not arguments.only or each.name in arguments.only]
    _provision(chosen)
    ground = Ground(arguments.rabbitmq, advanced_config=arguments.advanced_config)
    about: dict[str, Any] = {"broker": f"RabbitMQ {ground.version}", "scale": arguments.scale}
    if arguments.advanced_config:
        about["advanced.config"] = arguments.advanced_config
    cells: list[Cell] = []
    try:
        jobs = plan(ground, chosen, arguments.work, arguments.kinds, scale=arguments.scale)
        cells = [job.cell for job in jobs]
        _session(jobs, arguments, about)
    finally:
        ground.close()
        plot(cells, arguments.results)
    print("\n".join(goals_table(judge(cells))))
    print(arguments.results / "results.md")
    return 1 if any(cell.failures for cell in cells) else 0


def _provision(chosen: Sequence[Contender]) -> None:
    """Install the contenders before the clock starts; one that cannot be installed fails in its cells."""
    for contender in chosen:
        try:
            environment(contender)
        except RunFailed as error:
            print(error, file=sys.stderr, flush=True)


def _session(jobs: Sequence[Job], arguments: argparse.Namespace, about: dict[str, Any]) -> None:
    turns = [
        (number, job)
        for number in range(1, arguments.rounds + 1)
        for job in jobs
        if job.rounds is None or number <= job.rounds
    ]
    pace, began = Pace(), time.monotonic()
    left_out = 0
    for index, (number, job) in enumerate(turns):
        elapsed = time.monotonic() - began
        if elapsed > arguments.minutes * 60 and number > 1:
            left_out = len(turns) - index
            break
        ahead = [(each.cell.name, each.work) for _, each in turns[index:]]
        left = clock_text(pace.left(ahead))
        print(
            f"{index + 1} of {len(turns)}, {clock_text(elapsed)} elapsed, {left} left, round {number}:",
            end=" ",
            file=sys.stderr,
        )
        _run(job)
        pace.record(job.cell.name, job.work, job.cell.seconds[-1])
        # Written after each run, so that an interrupted session keeps its figures.
        about["minutes"] = round((time.monotonic() - began) / 60, 1)
        write([each.cell for each in jobs], arguments.results, about=about)
    if left_out:
        about["runs skipped for lack of time"] = left_out
        write([each.cell for each in jobs], arguments.results, about=about)
        print(f"time limit reached: skipped {left_out} runs", file=sys.stderr, flush=True)


def _run(job: Job) -> None:
    cell = job.cell
    print(cell.name, end=" ", file=sys.stderr, flush=True)
    began = time.monotonic()
    if len(cell.failures) >= _TRIES:
        cell.runs.append(None)
        print("skipped after earlier failures", end="", file=sys.stderr)
    else:
        try:
            figures = job.run()
            cell.runs.append(figures)
            print({name: round(value, 2) for name, value in figures.items()}, end="", file=sys.stderr)
        except Exception as error:  # noqa: BLE001 - one contender's failure does not stop the others
            cell.runs.append(None)
            cell.failures.append(f"{type(error).__name__}: {error}".replace(str(Path.home()), "~"))
            print("FAILED", str(error)[-500:], end="", file=sys.stderr)
    cell.seconds.append(time.monotonic() - began)
    print(file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each cell, in turns")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of tasks")
    parser.add_argument(
        "--minutes", type=float, default=57.0, help="start no run after this, except those of round 1"
    )
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", nargs="+", choices=[each.name for each in CONTENDERS], default=[])
    parser.add_argument("--rabbitmq", help="RabbitMQ version, such as 4.3; default: the installed one")
    parser.add_argument("--advanced-config", default="", help="contents of the broker's advanced.config")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
