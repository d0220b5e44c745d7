"""Processor time and memory of process trees, as Linux tells them."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cpu_seconds", "end", "largest_mb", "peak_mb", "proportional_mb", "resident_mb", "tree"]

_TICKS = os.sysconf("SC_CLK_TCK")


def tree(pids: Iterable[int]) -> set[int]:
    """The processes and all that descend from them."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    left = list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += parents.get(pid, ())
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time that the processes have used so far; with that of children that have ended."""
    return sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid))) / _TICKS


def resident_mb(pids: Iterable[int]) -> float:
    """Memory that the processes hold; pages that they share count for each."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def largest_mb(pids: Iterable[int]) -> float:
    """Memory that the largest of the processes holds."""
    return max((resident_mb([pid]) for pid in pids), default=0.0)


def proportional_mb(pids: Iterable[int]) -> float:
    """Memory that the processes hold; a page that several share is split among them."""
    return _kilobytes(pids, "smaps_rollup", "Pss:") * 1024 / 1e6


def peak_mb(pids: Iterable[int]) -> float:
    """The most memory that the processes have held, each at its own time."""
    return _kilobytes(pids, "status", "VmHWM:") * 1024 / 1e6


def end(process: subprocess.Popen[bytes], *, patience: float = 15.0) -> None:
    """Ask the process to stop; kill its tree when it does not."""
    if process.poll() is not None:
        return
    family = tree([process.pid])
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    for pid in family:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    time.sleep(0.1)


def _kilobytes(pids: Iterable[int], file: str, name: str) -> int:
    """The sum of one line of a file of each process; nothing for those that are gone."""
    kilobytes = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith(name))
    return kilobytes


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
