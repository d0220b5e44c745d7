"""Resources of this machine for tasks that need them."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from taskmq.model.resources import GPU, MEMORY, Amounts

_CGROUP: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_DEVICE: Final = re.compile(r"nvidia(\d+)")


def capacity(given: Amounts | None, *, processes: int) -> dict[str, float]:
    """Return the resources of one of this many worker processes: `given`, and its share of the machine's CPU and RAM.

    GPUs are not shared out: `devices` returns their owner.
    """
    found: dict[str, float] = {
        "cpu": _processors() / processes,
        MEMORY: _memory() // processes,
        GPU: float(len(devices(os.environ))),
    }
    return found | dict(given or {})


def devices(environment: Mapping[str, str]) -> list[str]:
    """Return ids of the GPUs that this process may use: those in `CUDA_VISIBLE_DEVICES`, else all."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [part.strip() for part in visible.split(",") if part.strip() not in ("", "-1")]
    return sorted(match[1] for name in _device_files() if (match := _DEVICE.fullmatch(name)))


def _device_files() -> Sequence[str]:
    try:
        return os.listdir("/dev")  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return ()


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _CGROUP:
        try:
            limit = int(file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        return min(limit, physical)
    return physical
