"""Single runs of cells. The figures exclude the time to connect and start.

Processor time is per task and covers whole process trees: `worker_us` is the worker's, `producer_us` the sender's,
and `broker_us` the broker's.
"""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.contender import Contender, Setup
from benchmarks.failures import RunFailed
from benchmarks.floors import run_floor
from benchmarks.ground import Ground, Run

Figures = dict[str, float]

# The share of tasks that runs before the clock starts.
_WARM: Final = 0.1


def enqueue(
    ground: Ground, contender: Contender, *, kind: str, mode: str, env: Mapping[str, str], count: int
) -> Figures:
    """Measure sending `count` tasks from one process."""
    with _running(ground, contender, contender.setups["1"], kind=kind) as run:
        run.produce("enqueue", "--mode", mode, "--count", str(max(count // 10, 100)), env=env)
        before = ground.cpu(kind)
        sent = run.produce("enqueue", "--mode", mode, "--count", str(count), env=env)
        return {
            "tasks_per_second": count / sent["seconds"],
            "producer_us": sent["cpu"] / count * 1e6,
            "broker_us": (ground.cpu(kind) - before) / count * 1e6,
        }


def drain(ground: Ground, contender: Contender, setup: Setup, *, kind: str, count: int) -> Figures:
    """Measure running `count` queued no-op tasks."""
    with _running(ground, contender, setup, kind=kind) as run:
        sent = run.produce("enqueue", "--mode", setup.fill, "--count", str(count))
        figures = _drained(ground, run, kind=kind, count=count)
        return {**figures, "producer_us": sent["cpu"] / count * 1e6}


def embedded(ground: Ground, contender: Contender, setup: Setup, *, count: int) -> Figures:
    """Measure sending `count` no-op tasks to the file-based broker and running them."""
    with tempfile.TemporaryDirectory(prefix="taskmq-bench-") as folder:
        env = {"BENCH_URL": f"local://{folder}/taskmq.db"}
        with _running(ground, contender, setup, kind="quorum", env=env) as run:
            sent = run.produce("enqueue", "--mode", "bulk", "--count", str(count))
            figures = _drained(ground, run, kind="quorum", count=count)
    del figures["broker_us"]
    return {**figures, "sent_per_second": count / sent["seconds"], "producer_us": sent["cpu"] / count * 1e6}


def scaling(
    ground: Ground, contender: Contender, setup: Setup, *, kind: str, milliseconds: int, count: int
) -> Figures:
    """Measure running `count` queued tasks that sleep."""
    with _running(ground, contender, setup, kind=kind) as run:
        sent = run.produce("pauses", "--milliseconds", str(milliseconds), "--count", str(count))
        figures = _drained(ground, run, kind=kind, count=count)
        return {**figures, "producer_us": sent["cpu"] / count * 1e6}


def latency(ground: Ground, contender: Contender, setup: Setup, *, kind: str, rate: int, seconds: float) -> Figures:
    """Measure the time from the sending call to the start of the task, at a steady rate with an idle worker."""
    count = max(round(rate * seconds), 50)
    with _running(ground, contender, setup, kind=kind, lateness=count) as run:
        # Warms everything up, and declares the queue for contenders whose worker does not.
        run.produce("stamps", "--rate", "100", "--count", "50")
        with run.working() as worker:
            run.until(50, worker)
            time.sleep(0.5)
            cpu, broker = worker.cpu(), ground.cpu(kind)
            sent = run.produce("stamps", "--rate", str(rate), "--count", str(count))
            run.until(50 + count, worker)
            return {
                **_lateness(run, count),
                "worker_us": (worker.cpu() - cpu) / count * 1e6,
                "producer_us": sent["cpu"] / count * 1e6,
                "broker_us": (ground.cpu(kind) - broker) / count * 1e6,
            }


def backlog(
    ground: Ground, contender: Contender, setup: Setup, *, kind: str, rate: int, seconds: float, count: int
) -> Figures:
    """Measure latency on a separate queue while the worker drains a backlog of `count` tasks from another queue.

    `backlog_left` is the share of the backlog that remained when the last task was sent. If it is 0, the worker was
    idle during part of the measurement.
    """
    stamps = max(round(rate * seconds), 50)
    env = {"BENCH_PROMPT": "1"}
    with _running(ground, contender, setup, kind=kind, lateness=stamps, env=env) as run:
        run.produce("enqueue", "--mode", setup.fill, "--count", str(count))
        words = ("stamps", "--rate", str(rate), "--count", str(stamps), "--after", str(max(count // 100, 1)))
        # The sender starts first and waits for the worker's first tasks.
        with run.producing(*words) as sender, run.working() as worker:
            sent = run.answer_of(sender)
            left = max(count + stamps - run.count_finished(), 0)
            run.until(count + stamps, worker)
            return {
                **_lateness(run, stamps),
                "backlog_left": min(left / count, 1.0),
                "worker_us": worker.cpu() / (count + stamps) * 1e6,
                "producer_us": sent["cpu"] / stamps * 1e6,
            }


def delayed(ground: Ground, contender: Contender, setup: Setup, *, kind: str, count: int, delay: float) -> Figures:
    """Measure how late `count` tasks start that were all delayed by `delay` seconds, with a running worker."""
    with _running(ground, contender, setup, kind=kind, lateness=count) as run:
        run.produce("enqueue", "--mode", setup.fill, "--count", "100")
        with run.working() as worker:
            run.until(100, worker)
            idle, cpu = worker.resident_mb(), worker.cpu()
            sent = run.produce("stamps", "--count", str(count), "--delay", str(delay))
            peak = worker.resident_mb()
            run.until(100 + count, worker)
            return {
                **_lateness(run, count),
                "resident_growth_mb": max(peak, worker.resident_mb()) - idle,
                "worker_us": (worker.cpu() - cpu) / count * 1e6,
                "producer_us": sent["cpu"] / count * 1e6,
                "delayed_tasks": float(count),
            }


def fan(ground: Ground, contender: Contender, setup: Setup, *, kind: str, count: int) -> Figures:
    """Measure fan-out and fan-in: send `count` tasks and one that depends on all; time until that one starts."""
    with _running(ground, contender, setup, kind=kind, lateness=1, env={"BENCH_REDIS": ground.redis()}) as run:
        run.produce("enqueue", "--mode", "one", "--count", "1")
        with run.working() as worker:
            run.until(1, worker)
            run.produce("fan", "--count", "10")
            run.until(12, worker)
            run.lateness[0] = 0
            cpu, broker, state = worker.cpu(), ground.cpu(kind), ground.cpu("redis")
            sent = run.produce("fan", "--count", str(count))
            run.until(12 + count + 1, worker)
            took = _lateness(run, 1)["p50_ms"] / 1e3
            return {
                "tasks_per_second": count / took,
                "until_gathered_s": took,
                "worker_us": (worker.cpu() - cpu) / count * 1e6,
                "producer_us": sent["cpu"] / count * 1e6,
                "broker_us": (ground.cpu(kind) - broker) / count * 1e6,
                "fan_tasks": float(count),
                "redis_us": (ground.cpu("redis") - state) / count * 1e6,
            }


def start(ground: Ground, contender: Contender, setup: Setup, *, kind: str) -> Figures:
    """Measure import time, time from launch to the end of the first task, and idle memory and processor time."""
    with _running(ground, contender, setup, kind=kind) as run:
        run.produce("enqueue", "--mode", setup.fill, "--count", "1")
        took = run.importing()
        launched = time.perf_counter()
        with run.working() as worker:
            ended = run.until(1, worker)
            first = worker.cpu()
            time.sleep(0.5)
            cpu, since = worker.cpu(), time.perf_counter()
            time.sleep(2.0)
            return {
                "import_ms": took * 1e3,
                "first_task_s": ended - launched,
                "resident_mb": worker.resident_mb(),
                "proportional_mb": worker.proportional_mb(),
                "largest_mb": worker.largest_mb(),
                "idle_cpu_percent": (worker.cpu() - cpu) / (time.perf_counter() - since) * 100,
                "start_cpu_s": first,
            }


def queued_memory(
    ground: Ground, contender: Contender, setup: Setup, *, kind: str, queued: int, count: int
) -> Figures:
    """Measure a worker's memory after it has run `count` of `queued` tasks.

    The contender sends one task and the C program copies it, because the slowest sender would take minutes.
    """
    with _running(ground, contender, setup, kind=kind) as run:
        run.produce("enqueue", "--mode", setup.fill, "--count", "1")
        waiting = ground.waiting()
        if list(waiting.values()) != [1]:
            raise RunFailed(f"{contender.name}: expected one message for one task, found {waiting}")
        run_floor("copy", ground, next(iter(waiting)), kind, queued, 1000)
        with run.working() as worker:
            run.until(count, worker)
            return {
                "resident_mb": worker.resident_mb(),
                "proportional_mb": worker.proportional_mb(),
                "largest_mb": worker.largest_mb(),
                "peak_mb": worker.peak_mb(),
                "broker_mb": ground.resident_mb(kind),
                "queued_tasks": float(queued),
            }


def idle_memory(ground: Ground, contender: Contender, setup: Setup, *, kind: str) -> Figures:
    """Measure the memory of an idle worker that has run one task."""
    with _running(ground, contender, setup, kind=kind) as run:
        run.produce("enqueue", "--mode", setup.fill, "--count", "1")
        with run.working() as worker:
            run.until(1, worker)
            time.sleep(1.0)
            return {
                "resident_mb": worker.resident_mb(),
                "proportional_mb": worker.proportional_mb(),
                "largest_mb": worker.largest_mb(),
                "peak_mb": worker.peak_mb(),
                "broker_mb": ground.resident_mb(kind),
            }


@contextlib.contextmanager
def _running(
    ground: Ground,
    contender: Contender,
    setup: Setup,
    *,
    kind: str,
    lateness: int = 0,
    env: Mapping[str, str] | None = None,
) -> Iterator[Run]:
    """Open a run on an empty broker."""
    ground.clear(kind)
    run = Run(ground, contender, setup, kind=kind, lateness=lateness, env=env)
    try:
        yield run
    finally:
        run.close()


def _drained(ground: Ground, run: Run, *, kind: str, count: int) -> Figures:
    with run.working() as worker:
        began = run.until(round(count * _WARM), worker)
        cpu, broker, first = worker.cpu(), ground.cpu(kind), run.count_finished()
        ended = run.until(count, worker)
        done = count - first
        if done <= 0:
            raise RunFailed(f"all {count} tasks had run before the clock started: use more tasks for this contender")
        return {
            "tasks_per_second": done / (ended - began),
            "worker_us": (worker.cpu() - cpu) / done * 1e6,
            "broker_us": (ground.cpu(kind) - broker) / done * 1e6,
            "resident_mb": worker.resident_mb(),
        }


def _lateness(run: Run, count: int) -> Figures:
    ordered = sorted(value / 1e6 for value in run.lateness[:count] if value)
    if len(ordered) < count:
        raise RunFailed(f"only {len(ordered)} of {count} tasks recorded their start")
    return {
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))],
        "max_ms": ordered[-1],
        "earliest_ms": ordered[0],
    }
