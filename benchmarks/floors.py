"""Throughput of a C program on librabbitmq: an upper bound for any task queue or Python client."""

import json
import subprocess

from benchmarks.failures import RunFailed
from benchmarks.ground import Ground
from benchmarks.provision import floor

_QUEUE = "floor"
_PREFETCH = 250


def floor_publish(ground: Ground, *, kind: str, count: int, unconfirmed: int) -> dict[str, float]:
    """Measure publishing with at most `unconfirmed` unconfirmed messages."""
    ground.clear(kind)
    before = ground.cpu(kind)
    figures = run_floor("publish", ground, _QUEUE, kind, count, unconfirmed)
    return {
        "tasks_per_second": count / figures["seconds"],
        "producer_us": figures["cpu"] / count * 1e6,
        "broker_us": (ground.cpu(kind) - before) / count * 1e6,
    }


def floor_consume(ground: Ground, *, kind: str, count: int) -> dict[str, float]:
    """Measure consuming and acknowledging each message without decoding or running anything."""
    ground.clear(kind)
    run_floor("publish", ground, _QUEUE, kind, count, 1000)
    before = ground.cpu(kind)
    figures = run_floor("consume", ground, _QUEUE, kind, count, _PREFETCH)
    return {
        "tasks_per_second": count / figures["seconds"],
        "worker_us": figures["cpu"] / count * 1e6,
        "broker_us": (ground.cpu(kind) - before) / count * 1e6,
    }


def run_floor(what: str, ground: Ground, queue: str, kind: str, count: int, window: int) -> dict[str, float]:
    """Run the program once and return its figures.

    Raises:
        RunFailed: the program is missing, failed, or did not end within five minutes.
    """
    port = ground.url.rpartition(":")[2].rstrip("/")
    command = [str(floor()), what, "127.0.0.1", port, queue, kind, str(count), str(window)]
    try:
        done = subprocess.run(command, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        stderr = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-500:]
        raise RunFailed(f"the floor in C, {what}: {error} {stderr}") from error
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
