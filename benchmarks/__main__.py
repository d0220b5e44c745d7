"""`python -m benchmarks`: run the contenders in turns and write `benchmarks/results/`."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import cells
from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.ground import Ground, RunFailed
from benchmarks.report import Cell, write

RESULTS = Path(__file__).parent / "results"
WORK = ("enqueue", "drain", "latency", "delayed", "scaling", "start")
# Tasks per run, so that a run of the quickest takes some seconds.
FAST = {"taskmq": 100_000, "floor": 200_000}
SLOW = 20_000


@dataclass(slots=True)
class Job:
    """A cell and how to run it once."""

    cell: Cell
    run: Callable[[], Mapping[str, float] | None]


def main() -> int:
    arguments = _arguments()
    chosen = [each for each in CONTENDERS if each.name in arguments.only] if arguments.only else list(CONTENDERS)
    ground = Ground(arguments.rabbitmq)
    jobs: list[Job] = []
    try:
        for work in arguments.work:
            for kind in arguments.kinds:
                jobs += _jobs(ground, chosen, work, kind, scale=arguments.scale)
        for number in range(1, arguments.rounds + 1):
            for job in jobs:
                _run(job, f"round {number} of {arguments.rounds}")
                # Written after each run: an interrupted session keeps what it has.
                write([job.cell for job in jobs], arguments.results, broker=ground.version)
    finally:
        ground.close()
    print(arguments.results / "results.md")
    return 1 if any(job.cell.failures for job in jobs) else 0


def _run(job: Job, label: str) -> None:
    cell = job.cell
    print(f"{label}: {cell.work} {cell.kind} {cell.contender} {cell.setup}", end=" ", file=sys.stderr, flush=True)
    figures: Mapping[str, float] | None = None
    try:
        figures = job.run()
    except RunFailed as error:
        cell.failures.append(str(error))
        print("FAILED", end="", file=sys.stderr)
    cell.runs.append(figures)
    print({name: round(value, 2) for name, value in (figures or {}).items()}, file=sys.stderr, flush=True)


def _jobs(ground: Ground, chosen: list[Contender], work: str, kind: str, *, scale: float) -> Iterator[Job]:
    for contender in chosen:
        if kind in contender.kinds:
            yield from _PLANS[work](ground, contender, kind, scale)
    number = round(FAST["floor"] * scale)
    if work == "enqueue":
        run = partial(cells.floor_publish, ground, kind=kind, count=number)
        yield Job(Cell("enqueue bulk", kind, "C", "floor"), run)
    if work == "drain":
        run = partial(cells.floor_consume, ground, kind=kind, count=number)
        yield Job(Cell("drain, 1", kind, "C", "floor"), run)


def _count(contender: Contender, scale: float) -> int:
    return round(FAST.get(contender.name, SLOW) * scale)


def _enqueue(ground: Ground, contender: Contender, kind: str, scale: float) -> Iterator[Job]:
    for label, (mode, env) in contender.modes.items():
        work, _, note = label.partition(", ")
        number = max(round(_count(contender, scale) * (0.1 if work == "one by one" else 1)), 500)
        run = partial(cells.enqueue, ground, contender, kind=kind, mode=mode, env=env, count=number)
        yield Job(Cell(f"enqueue {work}", kind, contender.name, note), run)


def _drain(ground: Ground, contender: Contender, kind: str, scale: float) -> Iterator[Job]:
    for label, setup in contender.setups.items():
        count = _count(contender, scale)
        number = count if label in ("1", "2") else max(count // 4, 1000)
        run = partial(cells.drain, ground, contender, setup, kind=kind, count=number)
        yield Job(Cell(f"drain, {label}", kind, contender.name, ""), run)


def _latency(ground: Ground, contender: Contender, kind: str, scale: float) -> Iterator[Job]:
    for rate in (100, 500, 1000) if contender.delays else ():
        setup = contender.setups["1"]
        run = partial(cells.latency, ground, contender, setup, kind=kind, rate=rate, seconds=5 * scale)
        yield Job(Cell(f"latency at {rate} per second", kind, contender.name, ""), run)


def _delayed(ground: Ground, contender: Contender, kind: str, scale: float) -> Iterator[Job]:
    if contender.delays:
        setup, count = contender.setups["1"], round(10_000 * scale)
        run = partial(cells.delayed, ground, contender, setup, kind=kind, count=count, delay=5.0)
        yield Job(Cell("delayed 5 s", kind, contender.name, ""), run)


def _scaling(ground: Ground, contender: Contender, kind: str, scale: float) -> Iterator[Job]:
    count = max(round(2_000 * scale), 100)
    for milliseconds in (1, 10, 100) if contender.delays else ():
        for label in ("1", "2"):
            setup = contender.setups[label]
            run = partial(cells.scaling, ground, contender, setup, kind=kind, milliseconds=milliseconds, count=count)
            yield Job(Cell(f"tasks of {milliseconds} ms, {label} processes", kind, contender.name, ""), run)


def _start(ground: Ground, contender: Contender, kind: str, _scale: float) -> Iterator[Job]:
    run = partial(cells.start, ground, contender, contender.setups["1"], kind=kind)
    yield Job(Cell("start", kind, contender.name, ""), run)


_PLANS = {
    "enqueue": _enqueue,
    "drain": _drain,
    "latency": _latency,
    "delayed": _delayed,
    "scaling": _scaling,
    "start": _start,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each cell is run, in turns")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of tasks")
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--kinds", nargs="+", choices=("classic", "quorum"), default=["quorum", "classic"])
    parser.add_argument("--only", nargs="+", choices=[each.name for each in CONTENDERS], default=[])
    parser.add_argument("--rabbitmq", help="the broker's version, such as 4.3; default: this machine's")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
