"""Processor time and memory of process trees, from Linux's /proc."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree(pids: Iterable[int]) -> set[int]:
    """Return the processes and all their descendants."""
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
    """Return the user and system time of the processes, including children that have ended."""
    return sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(pid))) / _TICKS


def resident_mb(pids: Iterable[int]) -> float:
    """Return the resident memory; pages shared by several processes count for each."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def largest_mb(pids: Iterable[int]) -> float:
    """Return the resident memory of the largest process."""
    return max((resident_mb([pid]) for pid in pids), default=0.0)


def proportional_mb(pids: Iterable[int]) -> float:
    """Return the proportional memory; shared pages are divided among the processes that share them."""
    return _kilobytes(pids, "smaps_rollup", "Pss:") * 1024 / 1e6


def peak_mb(pids: Iterable[int]) -> float:
    """Return the sum of each process's peak memory; the peaks may be at different times."""
    return _kilobytes(pids, "status", "VmHWM:") * 1024 / 1e6


def end(process: subprocess.Popen[bytes], *, patience: float = 15.0) -> None:
    """Stop the process, and kill its tree if it does not stop in time."""
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
    """Sum up one line of a /proc file over the processes, skipping those that have ended."""
    kilobytes = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith(name))
    return kilobytes


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
