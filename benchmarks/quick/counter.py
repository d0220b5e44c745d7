"""What this process costs: instructions where the machine counts them, and processor time in any case.

Instructions are counted by the processor (`perf_event_open`, Linux on x86-64 and ARM, where it is allowed): they
hardly depend on what else the machine does, so that a change of one in a hundred can be seen on a noisy one.
"""

import ctypes
import fcntl
import os
import platform
import struct
import time

__all__ = ["Counter"]

_CALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = 128
_INSTRUCTIONS = 1
# Off until it is asked for, threads that begin later included, without the kernel and the hypervisor; and without
# children, for the broker that plays is one (known since Linux 5.13; before, they count as well).
_FLAGS = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6
_THREADS_ALONE = 1 << 35
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403


class Counter:
    """Counts between `start` and `stop`. Made before the threads that it is to see."""

    def __init__(self) -> None:
        self._file = _open()
        self._began = 0.0

    @property
    def counts_instructions(self) -> bool:
        return self._file is not None

    def start(self) -> None:
        if self._file is not None:
            fcntl.ioctl(self._file, _RESET, 0)
            fcntl.ioctl(self._file, _ENABLE, 0)
        self._began = time.process_time()

    def stop(self) -> tuple[int | None, float]:
        """Instructions, if they are counted, and seconds of processor time."""
        seconds = time.process_time() - self._began
        if self._file is None:
            return None, seconds
        fcntl.ioctl(self._file, _DISABLE, 0)
        return int.from_bytes(os.read(self._file, 8), "little"), seconds


def _open() -> int | None:
    call = _CALL.get(platform.machine())
    if call is None or platform.system() != "Linux":
        return None
    kernel = ctypes.CDLL(None, use_errno=True)
    for flags in (_FLAGS | _THREADS_ALONE, _FLAGS):
        attributes = bytearray(_ATTRIBUTES)
        struct.pack_into("<IIQ", attributes, 0, 0, _ATTRIBUTES, _INSTRUCTIONS)
        struct.pack_into("<Q", attributes, 40, flags)
        given = (ctypes.c_char * _ATTRIBUTES).from_buffer(attributes)
        if (file := kernel.syscall(call, given, 0, -1, -1, 0)) >= 0:
            return file
    return None
