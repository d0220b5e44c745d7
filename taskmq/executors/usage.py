"""Processor time and memory that one run of an executor process has used."""

import resource
import sys
from pathlib import Path
from typing import Final

_RESET_PEAK: Final = "5"
# Linux counts in KiB, macOS in bytes.
_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class ProcessUsage:
    """Usage of this process from the creation of this object on."""

    def __init__(self) -> None:
        self._is_reset = _reset_peak()
        self._processor = _processor_seconds()
        self._peak = _peak_bytes()

    @property
    def processor(self) -> int:
        """Processor time in ms, with that of ended child processes."""
        return round((_processor_seconds() - self._processor) * 1000)

    @property
    def peak_memory(self) -> int | None:
        """Peak resident bytes; None if an earlier run needed more and the system cannot reset its peak."""
        peak = _peak_bytes()
        return peak if self._is_reset or peak > self._peak else None


def _reset_peak() -> bool:
    """Reset the kernel's record of the peak; return whether that worked."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def _processor_seconds() -> float:
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_bytes() -> int:
    # On Linux `ru_maxrss` includes the program that started this one, and a reset does not change it.
    try:
        status = Path("/proc/self/status").read_bytes()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
    return int(status.partition(b"VmHWM:")[2].split(maxsplit=1)[0]) * 1024
