"""`python -m benchmarks.quick`: the working tree against the last commit, in three minutes at most.

Each way is run with both trees in turns. Where the processor counts instructions they are compared, the median of
the rounds: they hardly depend on what else the machine does. A way that costs more than `--limit` percent more, and
more than its rounds differ among themselves, is told, and the exit code is 1.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_WAYS = Path(__file__).with_name("ways.py")
# Tasks of one run, so that it takes about two seconds.
NUMBERS = {
    "coroutine": 40_000,
    "told": 20_000,
    "waiting": 15_000,
    "thread": 15_000,
    "one_by_one": 5_000,
    "concurrent": 20_000,
    "bulk": 30_000,
    "embedded": 10_000,
}

Figures = dict[str, float | None]


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="taskmq-quick-") as folder:
        before = Path(folder)
        _export(arguments.against, before)
        worse = [way for way in arguments.ways if not _compare(way, before, arguments)]
    if worse:
        print(f"worse than {arguments.against}: {', '.join(worse)}")
    return 1 if worse else 0


def _compare(way: str, before: Path, arguments: argparse.Namespace) -> bool:
    """Whether the working tree is as good as the other."""
    number = round(NUMBERS[way] * arguments.scale)
    old: list[Figures] = []
    new: list[Figures] = []
    for _ in range(arguments.rounds):
        for tree, runs in ((before, old), (_ROOT, new)):
            if (figures := _run(tree, way, number)) is not None:
                runs.append(figures)
    if not old or not new:
        print(f"{way:12} not comparable: {'the last commit' if new else 'the working tree'} cannot be measured")
        return bool(new)
    unit = "instructions" if new[0]["instructions"] is not None else "microseconds"
    was, now = _values(old, unit), _values(new, unit)
    ratio = statistics.median(now) / statistics.median(was)
    noise = max(_spread(was), _spread(now))
    is_fine = (ratio - 1) * 100 <= max(arguments.limit, noise * 100)
    print(
        f"{way:12} {statistics.median(was):>11,.1f} -> {statistics.median(now):>11,.1f} {unit} a task, "
        f"{(ratio - 1) * 100:+6.1f} % (rounds differ by {noise * 100:.1f} %), "
        f"{statistics.median(_values(new, 'microseconds')):.1f} us{'' if is_fine else '   WORSE'}",
        flush=True,
    )
    return is_fine


def _run(tree: Path, way: str, number: int) -> Figures | None:
    done = subprocess.run(
        [sys.executable, str(_WAYS), str(tree), way, str(number)],
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
    )
    if done.returncode:
        print(f"{way} in {tree}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _export(commit: str, folder: Path) -> None:
    archive = subprocess.run(["git", "-C", str(_ROOT), "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def _values(runs: list[Figures], unit: str) -> list[float]:
    return [value for run in runs if (value := run[unit]) is not None]


def _spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    parser.add_argument("--against", default="HEAD", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of tasks")
    parser.add_argument("--limit", type=float, default=3.0, help="percent that count as worse")
    parser.add_argument("--ways", nargs="+", choices=list(NUMBERS), default=list(NUMBERS))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
