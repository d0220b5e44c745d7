"""Records of the tasks in files mapped into every process: counts and lateness.

Every contender's interpreter imports this module, so it uses only the standard library. The tasks do this work:

    noop(number, text, data)     counts
    pause(milliseconds)          sleeps, then counts
    stamp(number, sent_ns)       counts, and writes now - sent_ns at its number

`BENCH_TALLY` names the file of counts, `BENCH_LATENESS` that of the lateness.
"""

import mmap
import os
import time
from threading import get_native_id
from typing import Final

# A cell per thread needs no lock: the native thread ids of a run are never this far apart.
SLOTS: Final = 65_536
_MASK: Final = SLOTS - 1

ARGUMENTS: Final = ("hello", {"a": 1, "b": "x"})


def open_cells(path: str, cells: int) -> memoryview:
    """Open a file of `cells` signed 64-bit numbers shared by all processes, creating it if needed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < cells * 8:
            os.ftruncate(descriptor, cells * 8)
        return memoryview(mmap.mmap(descriptor, 0)).cast("q")
    finally:
        os.close(descriptor)


def total(cells: memoryview) -> int:
    """Return the sum of the counts."""
    return sum(cells)


_counts = open_cells(os.environ["BENCH_TALLY"], SLOTS) if "BENCH_TALLY" in os.environ else memoryview(bytearray(8))
_lateness = open_cells(os.environ["BENCH_LATENESS"], 1) if "BENCH_LATENESS" in os.environ else None


def counted() -> int:
    """Return the number of tasks that have run in all processes."""
    return total(_counts)


def count() -> None:
    """Count one task of this thread."""
    _counts[get_native_id() & _MASK] += 1


def record_lateness(number: int, sent_ns: int) -> None:
    """Record that task `number`, due at `sent_ns`, starts now."""
    late = time.time_ns() - sent_ns
    if _lateness is not None and number < len(_lateness):
        # 0 means that the task has not run.
        _lateness[number] = late or 1
    count()
