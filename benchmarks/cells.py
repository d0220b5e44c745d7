"""One run of one cell. All figures are of the measured part only: connecting and starting is left out."""

import json
import statistics
import subprocess
import time
from collections.abc import Mapping
from typing import Final

from benchmarks.contenders import Contender, Setup
from benchmarks.ground import Ground, Run
from benchmarks.provision import floor

__all__ = ["delayed", "drain", "enqueue", "floor_consume", "floor_publish", "latency", "scaling", "start"]

Figures = dict[str, float]

# The share of tasks that runs before the clock does.
_WARM: Final = 0.1
_READY: Final = 60.0


def enqueue(
    ground: Ground, contender: Contender, *, kind: str, mode: str, env: Mapping[str, str], count: int
) -> Figures:
    """Send `count` tasks from one process."""
    ground.clear()
    run = Run(ground, contender, next(iter(contender.setups.values())), kind=kind)
    run.produce("enqueue", "--mode", mode, "--count", str(max(count // 10, 100)), env=env)
    before = ground.cpu()
    sent = run.produce("enqueue", "--mode", mode, "--count", str(count), env=env)
    return {
        "tasks_per_second": count / sent["seconds"],
        "producer_us": sent["cpu"] / count * 1e6,
        "broker_us": (ground.cpu() - before) / count * 1e6,
    }


def drain(ground: Ground, contender: Contender, setup: Setup, *, kind: str, count: int) -> Figures:
    """Run `count` waiting no-op tasks."""
    ground.clear()
    run = Run(ground, contender, setup, kind=kind)
    run.produce("enqueue", "--mode", setup.fill, "--count", str(count))
    with run.working() as worker:
        began = run.until(round(count * _WARM), worker)
        cpu, broker, first = worker.cpu(), ground.cpu(), run.done()
        ended = run.until(count, worker)
        done = count - first
        return {
            "tasks_per_second": done / (ended - began),
            "worker_us": (worker.cpu() - cpu) / done * 1e6,
            "broker_us": (ground.cpu() - broker) / done * 1e6,
            "resident_mb": worker.resident_mb(),
        }


def scaling(
    ground: Ground, contender: Contender, setup: Setup, *, kind: str, milliseconds: int, count: int
) -> Figures:
    """Run `count` waiting tasks that sleep."""
    ground.clear()
    run = Run(ground, contender, setup, kind=kind)
    run.produce("pauses", "--milliseconds", str(milliseconds), "--count", str(count))
    with run.working() as worker:
        began = run.until(round(count * _WARM), worker)
        first = run.done()
        ended = run.until(count, worker)
        return {"tasks_per_second": (count - first) / (ended - began)}


def latency(ground: Ground, contender: Contender, setup: Setup, *, kind: str, rate: int, seconds: float) -> Figures:
    """From the call that sends to the start of the task, at a steady rate, with an idle worker."""
    ground.clear()
    count = round(rate * seconds)
    run = Run(ground, contender, setup, kind=kind, lateness=count)
    # Declares the queue for those whose worker does not, and wakes everything up.
    run.produce("stamps", "--rate", "100", "--count", "50")
    with run.working() as worker:
        run.until(50, worker)
        time.sleep(1.0)
        run.produce("stamps", "--rate", str(rate), "--count", str(count))
        run.until(50 + count, worker)
        return _spread([value / 1e6 for value in run.lateness])


def delayed(ground: Ground, contender: Contender, setup: Setup, *, kind: str, count: int, delay: float) -> Figures:
    """How late `count` tasks start that were all to wait `delay` seconds; the worker is there from the beginning."""
    ground.clear()
    run = Run(ground, contender, setup, kind=kind, lateness=count)
    run.produce("enqueue", "--mode", setup.fill, "--count", "100")
    with run.working() as worker:
        run.until(100, worker)
        idle = worker.resident_mb()
        run.produce("stamps", "--count", str(count), "--delay", str(delay))
        peak = worker.resident_mb()
        run.until(100 + count, worker)
        return {
            **_spread([value / 1e6 for value in run.lateness]),
            "resident_growth_mb": max(peak, worker.resident_mb()) - idle,
        }


def start(ground: Ground, contender: Contender, setup: Setup, *, kind: str) -> Figures:
    """Import, launch to the first task's end, and memory when idle."""
    ground.clear()
    run = Run(ground, contender, setup, kind=kind)
    run.produce("enqueue", "--mode", setup.fill, "--count", "1")
    launched = time.perf_counter()
    with run.working() as worker:
        ended = run.until(1, worker)
        time.sleep(2.0)
        idle = worker.resident_mb()
    took = run.importing()
    return {"import_ms": took * 1e3, "first_task_s": ended - launched, "resident_mb": idle}


def floor_publish(ground: Ground, *, kind: str, count: int) -> Figures | None:
    """What C reaches with 1,000 unconfirmed messages."""
    return _floor(ground, "publish", kind, count, 1000)


def floor_consume(ground: Ground, *, kind: str, count: int) -> Figures | None:
    """What C reaches when it acknowledges each message."""
    if _floor(ground, "publish", kind, count, 1000) is None:
        return None
    return _floor(ground, "consume", kind, count, 250, clear=False)


def _floor(ground: Ground, what: str, kind: str, count: int, window: int, *, clear: bool = True) -> Figures | None:
    if (program := floor()) is None:
        return None
    if clear:
        ground.clear()
    port = ground.url.rpartition(":")[2].rstrip("/")
    command = [str(program), what, "127.0.0.1", port, "floor", kind, str(count), str(window)]
    before = ground.cpu()
    out = subprocess.run(command, check=True, capture_output=True, timeout=300).stdout
    figures = json.loads(out)
    return {
        "tasks_per_second": count / figures["seconds"],
        "producer_us" if what == "publish" else "worker_us": figures["cpu"] / count * 1e6,
        "broker_us": (ground.cpu() - before) / count * 1e6,
    }


def _spread(values: list[float]) -> Figures:
    ordered = sorted(values)
    return {
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[min(len(ordered) - 1, round(len(ordered) * 0.99))],
        "max_ms": ordered[-1],
        "earliest_ms": ordered[0],
    }
