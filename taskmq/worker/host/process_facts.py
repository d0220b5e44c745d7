"""What the operating system knows of this process."""

import os
import resource
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from taskmq.executors import ThreadExecutor
from taskmq.run.execution import Executor

__all__ = ["abandoned", "is_gone", "open_descriptors", "process_identity", "resident_bytes"]


def resident_bytes() -> int:
    """Memory of this process that is in RAM; where the system does not tell, the most that it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_descriptors() -> int:
    """How many this process has open; 0 where the system does not tell."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            # Minus the one that lists the folder.
            return len(os.listdir(folder)) - 1  # noqa: PTH208 - no paths are wanted, only their number
        except OSError:
            continue
    return 0


def abandoned(executors: Iterable[Executor]) -> int:
    """Threads that were given up and have not returned yet."""
    return sum(executor.abandoned for executor in executors if isinstance(executor, ThreadExecutor))


_STARTED: Final = 19
# Of a process that has ended and that its parent has not looked after yet.
_ENDED: Final = frozenset("ZXx")


def process_identity() -> str:
    """Identifies this process among all others, also a later one with its number."""
    place = _place()
    started = _started(os.getpid())
    if place is None or started is None:
        return f"?.{uuid.uuid4().hex}"
    return f"{place}.{os.getpid()}.{started}"


def is_gone(identity: str) -> bool:
    """Whether that process has certainly ended. False of those that cannot be seen from here."""
    place, _, rest = identity.partition(".")
    number, _, started = rest.partition(".")
    if not number.isdecimal() or place != _place():
        return False
    return _started(int(number)) != started


def _place() -> str | None:
    """This start of the machine, and the namespace of its processes; None where that is not to be known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link that is not to be resolved by name
    except OSError:
        return None
    return f"{boot.replace('-', '')[:12]}{space:x}"


def _started(number: int) -> str | None:
    """When a process began, in the kernel's ticks; None where it has ended."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # After the name, which may hold anything.
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in _ENDED else rest[_STARTED - 1]
