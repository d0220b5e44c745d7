"""`python -m benchmarks.quick`: the working tree against the last commit, in three minutes at most.

Each way runs with both trees in turns. If the processor counts instructions, their medians are compared: they hardly
depend on the load of the machine. A way is reported, with exit code 1, if its cost rises by more than `--limit`
percent and by more than the spread of its rounds.

Most virtual machines do not count instructions. There, `--valgrind` counts them in one round of fifteen minutes: the
cost is the difference between a short and a longer run.
"""

import argparse
import compileall
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_ROOT = Path(__file__).resolve().parents[2]
_WAYS = Path(__file__).with_name("ways.py")
# Tasks of one run, so that it takes about two seconds.
NUMBERS = {
    "coroutine": 40_000,
    "events": 20_000,
    "recorded": 20_000,
    "stored": 40_000,
    "waiting": 15_000,
    "thread": 15_000,
    "one_by_one": 5_000,
    "concurrent": 20_000,
    "bulk": 30_000,
    "embedded": 10_000,
}

# Fewer tasks under valgrind, which is fifty times slower.
_SHORT: Final = 1_000
_LONG: Final = 4_000

Figures = dict[str, float | None]


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="taskmq-quick-") as folder:
        before = Path(folder)
        _export(arguments.against, before)
        for tree in (before, _ROOT):
            _compile(tree)
        worse = [way for way in arguments.ways if not _compare(way, before, arguments)]
    if worse:
        print(f"worse than {arguments.against}: {', '.join(worse)}")
    return 1 if worse else 0


def _compare(way: str, before: Path, arguments: argparse.Namespace) -> bool:
    """Measure a way with both trees, and return whether the working tree is as good."""
    number = round(NUMBERS[way] * arguments.scale)
    old: list[Figures] = []
    new: list[Figures] = []
    for _ in range(arguments.rounds or (1 if arguments.valgrind else 3)):
        for tree, runs in ((before, old), (_ROOT, new)):
            figures = _counted(tree, way) if arguments.valgrind else _run(tree, way, number)
            if figures is not None:
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
        f"{(ratio - 1) * 100:+6.1f} % (rounds differ by {noise * 100:.1f} %)"
        f"{_microseconds(new)}{'' if is_fine else '   WORSE'}",
        flush=True,
    )
    return is_fine


def _microseconds(runs: list[Figures]) -> str:
    found = _values(runs, "microseconds")
    return f", {statistics.median(found):.1f} us" if found else ""


def _counted(tree: Path, way: str) -> Figures | None:
    """Return the instructions per task, or None if valgrind fails."""
    counts: list[int] = []
    for number in (_SHORT, _LONG):
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        done = subprocess.run(
            [*command, sys.executable, str(_WAYS), str(tree), way, str(number)],
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
            # Keep the order of sets of strings the same in all runs.
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
        if done.returncode or found is None:
            print(f"{way} in {tree}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return None
        counts.append(int(found[1].replace(",", "")))
    return {"instructions": (counts[1] - counts[0]) / (_LONG - _SHORT), "microseconds": None}


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


def _compile(tree: Path) -> None:
    """Compile a tree's bytecode, so that its first run does not count the compiler."""
    for package in ("taskmq", "brokers", "contrib"):
        compileall.compile_dir(tree / package, quiet=1)


def _values(runs: list[Figures], unit: str) -> list[float]:
    return [value for run in runs if (value := run[unit]) is not None]


def _spread(values: list[float]) -> float:
    return (max(values) - min(values)) / statistics.median(values)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    parser.add_argument("--against", default="HEAD", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=0, help="0: three, or one under valgrind")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual number of tasks")
    parser.add_argument("--limit", type=float, default=3.0, help="increase in percent that counts as worse")
    parser.add_argument("--valgrind", action="store_true", help="count instructions if the processor does not")
    parser.add_argument("--ways", nargs="+", choices=list(NUMBERS), default=list(NUMBERS))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
