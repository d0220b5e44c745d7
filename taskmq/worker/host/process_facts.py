"""Facts of this process from the operating system."""

import os
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from taskmq.executors import ThreadExecutor
from taskmq.run.execution import Executor


def resident_bytes() -> int:
    """Return the resident memory of this process; its maximum so far on systems without the present value."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processor_time() -> tuple[float, float]:
    return time.process_time(), time.monotonic()


class ProcessorUse:
    """Processor use of this process, without its child processes.

    Args:
        window: least seconds of a measurement; only the first ones are shorter.
        read: returns the processor time of the process, and the present time, both in seconds.
    """

    def __init__(self, window: float = 0.0, read: Callable[[], tuple[float, float]] = _processor_time) -> None:
        self._window = window
        self._read = read
        self._from = self._next = read()

    def cores(self) -> float:
        """Return the mean number of cores used since an earlier call at least `window` seconds ago, or the start."""
        used, at = self._read()
        if at - self._next[1] >= self._window:
            self._from, self._next = self._next, (used, at)
        return (used - self._from[0]) / max(at - self._from[1], 0.001)


def open_descriptors() -> int:
    """Return the number of open descriptors of this process; 0 if the system does not report it."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            # Minus the one that lists the folder.
            return len(os.listdir(folder)) - 1  # noqa: PTH208 - no paths are wanted, only their number
        except OSError:
            continue
    return 0


def count_abandoned(executors: Iterable[Executor]) -> int:
    """Return the number of abandoned threads that have not returned."""
    return sum(executor.abandoned for executor in executors if isinstance(executor, ThreadExecutor))


_STARTED: Final = 19
# States of a process that ended and was not yet reaped by its parent.
_ENDED: Final = frozenset("ZXx")


def process_identity() -> str:
    """Return an identity of this process that no other process has, not even a later one with its pid."""
    kernel = _read_kernel()
    started = _start_of(os.getpid())
    if kernel is None or started is None:
        return f"?.{uuid.uuid4().hex}"
    return f"{kernel}.{os.getpid()}.{started}"


def is_gone(identity: str) -> bool:
    """Return whether that process has certainly ended; False for processes that cannot be seen from here."""
    kernel, _, rest = identity.partition(".")
    number, _, started = rest.partition(".")
    if not number.isdecimal() or kernel != _read_kernel():
        return False
    return _start_of(int(number)) != started


def _read_kernel() -> str | None:
    """Identify this boot of the machine and the pid namespace; None if they are unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link that is not to be resolved by name
    except OSError:
        return None
    return f"{boot.replace('-', '')[:12]}{space:x}"


def _start_of(number: int) -> str | None:
    """Return the start of a process in the kernel's ticks; None if it has ended."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # After the name, which may contain anything.
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in _ENDED else rest[_STARTED - 1]
