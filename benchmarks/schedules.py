"""`python -m benchmarks.schedules`: memory and processor time of a beat with many schedules, few of which are due.

    beat alone                 memory, processor time
    + COUNT that are not due   the same, and the memory of Redis
    + DUE schedules a second   lateness of emission and start, and the cost of one

Memory is the resident memory of the beat's process. `peers/schedules_peer.py` is the app.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from benchmarks.contender import Contender, Setup
from benchmarks.failures import RunFailed
from benchmarks.ground import Ground, Run, Worker
from tests.servers import eventually

_KIND: Final = "quorum"
_PATIENCE: Final = 600.0
# A beat below this share of a processor has finished loading.
_IDLE: Final = 0.1


def _taskmq(*words: str) -> Setup:
    return Setup(lambda folder: [str(folder / "taskmq"), "-q", *words])


_BEAT: Final = _taskmq("beat", "schedules_peer:app")
_WORKER: Final = _taskmq("worker", "schedules_peer:app", "--concurrency", "100")
_OURS: Final = Contender("taskmq", "schedules_peer.py", (), {"1": _BEAT}, {})


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="taskmq-schedules-") as folder:
        ground = Ground(arguments.rabbitmq)
        try:
            _measure(ground, Path(folder) / "ledger", arguments)
        except (RunFailed, TimeoutError) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            ground.close()
    return 0


def _measure(ground: Ground, ledger: Path, arguments: argparse.Namespace) -> None:
    ground.clear(_KIND)
    env = {"BENCH_REDIS": ground.redis(), "BENCH_LEDGER": str(ledger)}
    count, seconds = arguments.count, arguments.seconds

    with _running(ground, _BEAT, env) as beat:
        _until_idle(beat)
        bare = beat.resident_mb()
        print(f"a beat without schedules: {bare:.1f} MB, {_share(beat, seconds):.2%} of a processor", flush=True)

    before = ground.redis_bytes()
    with contextlib.closing(Run(ground, _OURS, _BEAT, kind=_KIND, env=env)) as run:
        added = run.produce(str(count))
    kept = (ground.redis_bytes() - before) / count
    print(
        f"{count:,} added: {count / added['seconds']:,.0f} a second, {added['cpu'] / count * 1e6:.0f} us each, "
        f"{kept:.0f} bytes each in Redis"
    )

    with _running(ground, _BEAT, env) as beat:
        took = _until_idle(beat)
        held = (beat.resident_mb() - bare) / count * 1e6
        print(
            f"a beat with them: {beat.resident_mb():.1f} MB, {held:.0f} bytes each, loaded in {took:.1f} s, "
            f"{_share(beat, seconds):.2%} of a processor"
        )
        print(f"Redis afterwards: {(ground.redis_bytes() - before) / count:.0f} bytes each", flush=True)

    due = {**env, "BENCH_DUE": str(arguments.due)}
    with _running(ground, _WORKER, due), _running(ground, _BEAT, due) as beat:
        wanted = 2 * arguments.due
        eventually(lambda: len(_lines(ledger)) >= wanted, f"{wanted} runs", within=timedelta(seconds=_PATIENCE))
        first, cpu, began = len(_lines(ledger)), beat.cpu(), time.perf_counter()
        time.sleep(seconds)
        emitted = len(_lines(ledger)) - first
        share = (beat.cpu() - cpu) / (time.perf_counter() - began)
        each = share * seconds / max(emitted, 1) * 1e6
        print(
            f"{arguments.due} due per second in addition: {emitted} in {seconds:.0f} s, {share:.1%} of a "
            f"processor, {each:.0f} us each"
        )
        for column, what in enumerate(("emitted", "started")):
            late = sorted(float(line.split()[column]) for line in _lines(ledger)[first:])
            p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
            print(f"{what} late: p50 {p50:.0f} ms, p99 {p99:.0f} ms, max {late[-1]:.0f} ms")


@contextlib.contextmanager
def _running(ground: Ground, setup: Setup, env: dict[str, str]) -> Generator[Worker]:
    with contextlib.closing(Run(ground, _OURS, setup, kind=_KIND, env=env)) as run, run.working() as processes:
        yield processes


def _until_idle(beat: Worker) -> float:
    """Wait until the beat is idle and return the seconds that took."""
    began = time.perf_counter()
    while (now := time.perf_counter()) - began < _PATIENCE:
        if _share(beat, 1.0) < _IDLE and now - began > 3:
            return now - began
        if not beat.is_alive():
            raise RunFailed("the beat exited")
    raise RunFailed(f"the beat is still busy after {_PATIENCE:.0f} s")


def _share(processes: Worker, seconds: float) -> float:
    cpu, began = processes.cpu(), time.perf_counter()
    time.sleep(seconds)
    return (processes.cpu() - cpu) / (time.perf_counter() - began)


def _lines(ledger: Path) -> Sequence[str]:
    return ledger.read_text(encoding="ascii").splitlines() if ledger.exists() else ()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="schedules that are not due")
    parser.add_argument("--due", type=int, default=100, help="schedules due per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds to measure each part")
    parser.add_argument("--rabbitmq", help="RabbitMQ version, such as 4.3; default: the installed one")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
