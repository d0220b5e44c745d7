"""Counter of this process's instructions, if the machine counts them, and of its processor time.

The processor counts instructions (`perf_event_open`, on Linux on x86-64 and ARM, if permitted). They hardly depend on
the load of the machine, so that a change of one percent is visible on a noisy one.
"""

import ctypes
import fcntl
import os
import platform
import struct
import time

_CALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = 128
_INSTRUCTIONS = 1
# Disabled until started; including later threads; excluding kernel and hypervisor. Child processes, such as the fake
# broker, are excluded since Linux 5.13; older kernels count them.
_FLAGS = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6
_THREADS_ALONE = 1 << 35
_ENABLE, _DISABLE, _RESET = 0x2400, 0x2401, 0x2403


class Counter:
    """Counts between `start` and `stop`. Create it before the threads that it should count."""

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
        """Return the instructions, or None if not counted, and the seconds of processor time."""
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
