"""`python -m benchmarks.features`: cost per run of each feature that needs Redis.

The benchmark runs one worker process, a RabbitMQ node, and a Redis without persistence, and measures the processor
time of each. Bare tasks show absolute figures; other rows show the difference from bare tasks in the same round.
`scripts` counts script calls. `commands` counts all Redis commands: script calls, commands within scripts, and
messages published to subscribers.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.cell import spread_text
from benchmarks.contender import Contender, Setup
from benchmarks.failures import RunFailed
from benchmarks.ground import Ground, Run

_KIND: Final = "quorum"
_WARM: Final = 0.1
_TIMES: Final = ("worker_us", "sender_us", "redis_us")
_COUNTS: Final = ("scripts", "commands")
_COMMAND: Final = ("-q", "worker", "features_peer:app", "--processes", "1", "--concurrency", "100")
_OURS: Final = Contender(
    "taskmq", "features_peer.py", (), {"1": Setup(lambda folder: [str(folder / "taskmq"), *_COMMAND])}, {}
)

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Feature:
    """A row.

    Attributes:
        mode: the mode of `peers/features_peer.py`.
        what: the label in the table.
        is_live: whether tasks run while they are sent, rather than after all are sent.
    """

    mode: str
    what: str
    is_live: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether this row is the baseline of the others."""
        return self.mode == "nothing"


FEATURES: Final = (
    Feature("nothing", "nothing"),
    Feature("result", "a result that is stored"),
    Feature("idempotency key", "`idempotency_key`"),
    Feature("unique", "`unique`"),
    Feature("rate limit", "`rate_limit`"),
    Feature("concurrency", "`concurrency`"),
    Feature("lock", "`context.lock`"),
    Feature("fencing token", "`context.fencing_token`"),
    Feature("step", "`context.step`"),
    Feature("checkpoint", "`context.checkpoint`"),
    Feature("progress", "`context.progress`"),
    Feature("nothing", "nothing, live", is_live=True),
    Feature("awaited result", "a result that is awaited, 100 at a time, live", is_live=True),
    Feature("delay", '`delay="1s"` in the state, live', is_live=True),
)


def main() -> int:
    arguments = _arguments()
    chosen = [each for each in FEATURES if not arguments.only or each.is_bare or each.mode in arguments.only]
    found: dict[Feature, list[Figures]] = {each: [] for each in chosen}
    ground = Ground(arguments.rabbitmq)
    try:
        for number in range(1, arguments.rounds + 1):
            for feature in chosen:
                figures = _measure(ground, feature, arguments.count)
                found[feature].append(figures)
                shown = ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
                print(f"round {number}: {feature.what}: {shown}", file=sys.stderr, flush=True)
    except RunFailed as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        ground.close()
    print("\n".join(table(found)))
    return 0


def table(found: Mapping[Feature, Sequence[Figures]]) -> list[str]:
    """Format the costs as Markdown: of bare tasks, and the extra cost of each feature within each round."""
    bare = {feature.is_live: runs for feature, runs in found.items() if feature.is_bare}
    return [
        "| a run with | a second | worker, us | sender, us | Redis, us | scripts | commands |",
        "|---|---|---|---|---|---|---|",
        *(_row(feature, runs, bare[feature.is_live]) for feature, runs in found.items()),
    ]


def _row(feature: Feature, runs: Sequence[Figures], bare: Sequence[Figures]) -> str:
    cells = [feature.what, spread_text([run["runs_per_second"] for run in runs])]
    for name in _TIMES:
        if feature.is_bare:
            cells.append(spread_text([run[name] for run in runs]))
        else:
            cells.append(f"+ {spread_text([run[name] - less[name] for run, less in zip(runs, bare, strict=True)])}")
    cells += [f"{statistics.median(run[name] for run in runs):.2f}" for name in _COUNTS]
    return f"| {' | '.join(cells)} |"


def _measure(ground: Ground, feature: Feature, count: int) -> Figures:
    ground.clear(_KIND)
    env = {"BENCH_REDIS": ground.redis(), "BENCH_FEATURE": feature.mode}
    with contextlib.closing(Run(ground, _OURS, _OURS.setups["1"], kind=_KIND, env=env)) as run:
        return (_live if feature.is_live else _one_then_other)(ground, run, feature, count)


def _one_then_other(ground: Ground, run: Run, feature: Feature, count: int) -> Figures:
    before = _Reading(ground)
    sent = run.produce("enqueue", "--mode", feature.mode, "--count", str(count))
    sending = before.since(count)
    with run.working() as worker:
        began = run.until(round(count * _WARM), worker)
        first, cpu, state = run.count_finished(), worker.cpu(), _Reading(ground)
        ended = run.until(count, worker)
        if not (done := count - first):
            raise RunFailed(f"{feature.what}: all {count} had run before the measurement began: use a higher --count")
        running = state.since(done)
        return {
            "runs_per_second": done / (ended - began),
            "worker_us": (worker.cpu() - cpu) / done * 1e6,
            "sender_us": sent["cpu"] / count * 1e6,
            **{name: sending[name] + running[name] for name in running},
        }


def _live(ground: Ground, run: Run, feature: Feature, count: int) -> Figures:
    warm = round(count * _WARM)
    with run.working() as worker:
        run.produce("enqueue", "--mode", feature.mode, "--count", str(warm))
        run.until(warm, worker)
        cpu, state = worker.cpu(), _Reading(ground)
        with run.producing("enqueue", "--mode", feature.mode, "--count", str(count)) as sender:
            began = run.until(warm + 1, worker)
            ended = run.until(warm + count, worker)
            sent = run.answer_of(sender)
        return {
            "runs_per_second": count / (ended - began),
            "worker_us": (worker.cpu() - cpu) / count * 1e6,
            "sender_us": sent["cpu"] / count * 1e6,
            **state.since(count),
        }


class _Reading:
    """Processor time and command counts of Redis at one instant."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._seconds, self._calls = ground.cpu("redis"), ground.redis_calls()

    def since(self, count: int) -> Figures:
        """Return the use of Redis since then, divided by `count` runs."""
        calls = self._ground.redis_calls()
        scripts, before = (each.get("evalsha", 0) for each in (calls, self._calls))
        return {
            "redis_us": (self._ground.cpu("redis") - self._seconds) / count * 1e6,
            "scripts": (scripts - before) / count,
            "commands": (sum(calls.values()) - sum(self._calls.values())) / count,
        }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.features", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each feature, in turns")
    parser.add_argument("--count", type=int, default=10_000, help="task runs; a multiple of 1,000")
    parser.add_argument("--only", nargs="+", choices=list(dict.fromkeys(each.mode for each in FEATURES)), default=[])
    parser.add_argument("--rabbitmq", help="RabbitMQ version, such as 4.3; default: the installed one")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
