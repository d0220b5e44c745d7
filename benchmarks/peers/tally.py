"""What a task writes down, in files mapped into every process: counts, and how late each one started.

Read by every contender's own interpreter: nothing but the standard library. The work of the tasks themselves:

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

__all__ = ["ARGUMENTS", "SLOTS", "count", "counted", "open_cells", "record_lateness", "total"]

# A cell per thread, so that nobody needs a lock: native thread ids of one run do not lie this far apart.
SLOTS: Final = 65_536
_MASK: Final = SLOTS - 1

ARGUMENTS: Final = ("hello", {"a": 1, "b": "x"})


def open_cells(path: str, cells: int) -> memoryview:
    """`cells` signed 64-bit numbers, shared by all who open the file; made when it is not there."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < cells * 8:
            os.ftruncate(descriptor, cells * 8)
        return memoryview(mmap.mmap(descriptor, 0)).cast("q")
    finally:
        os.close(descriptor)


def total(cells: memoryview) -> int:
    """How many tasks have been counted."""
    return sum(cells)


_counts = open_cells(os.environ["BENCH_TALLY"], SLOTS) if "BENCH_TALLY" in os.environ else memoryview(bytearray(8))
_lateness = open_cells(os.environ["BENCH_LATENESS"], 1) if "BENCH_LATENESS" in os.environ else None


def counted() -> int:
    """How many tasks have run, in all processes."""
    return total(_counts)


def count() -> None:
    """One more task has run."""
    _counts[get_native_id() & _MASK] += 1


def record_lateness(number: int, sent_ns: int) -> None:
    """The task `number` starts now; it should have at `sent_ns`."""
    late = time.time_ns() - sent_ns
    if _lateness is not None and number < len(_lateness):
        # 0 is "has not run".
        _lateness[number] = late or 1
    count()
