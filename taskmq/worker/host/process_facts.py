"""What the operating system knows of this process."""

import os
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

from taskmq.executors import ThreadExecutor
from taskmq.run.execution import Executor

__all__ = ["abandoned", "open_descriptors", "resident_bytes"]


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
