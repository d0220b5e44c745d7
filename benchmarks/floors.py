"""What a C program on librabbitmq reaches: no task queue can be quicker, and no Python client either."""

import json
import subprocess

from benchmarks.failures import RunFailed
from benchmarks.ground import Ground
from benchmarks.provision import floor

__all__ = ["floor_consume", "floor_publish", "run_floor"]

_QUEUE = "floor"
_PREFETCH = 250


def floor_publish(ground: Ground, *, kind: str, count: int, unconfirmed: int) -> dict[str, float]:
    """Publish with at most so many unconfirmed messages."""
    ground.clear(kind)
    before = ground.cpu(kind)
    figures = run_floor("publish", ground, _QUEUE, kind, count, unconfirmed)
    return {
        "tasks_per_second": count / figures["seconds"],
        "producer_us": figures["cpu"] / count * 1e6,
        "broker_us": (ground.cpu(kind) - before) / count * 1e6,
    }


def floor_consume(ground: Ground, *, kind: str, count: int) -> dict[str, float]:
    """Consume and acknowledge each message; nothing is decoded or run."""
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
    """One run of the program.

    Raises:
        RunFailed: it is not there, has failed, or has not ended within five minutes.
    """
    port = ground.url.rpartition(":")[2].rstrip("/")
    command = [str(floor()), what, "127.0.0.1", port, queue, kind, str(count), str(window)]
    try:
        done = subprocess.run(command, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-500:]
        raise RunFailed(f"the floor in C, {what}: {error} {said}") from error
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
