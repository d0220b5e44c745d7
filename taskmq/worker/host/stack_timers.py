"""Stacks of a process in which no Python code runs, because a call into C holds the interpreter.

Each thread has timers of the kernel's (`timer_create(2)`) that send a signal to that very thread, and are put off
for as long as Python code runs. The handler is `faulthandler`'s, in C: it writes the stack of the thread that it
interrupts, and of no other.

`faulthandler.dump_traceback_later` would be simpler. But where the process was only stopped, or starved, it reads
the stacks of threads that go on running, and ends the process with a segmentation fault: in a program of four busy
threads within a second. This way it is one of some ten thousand dumps of a thread that is hit while it runs Python
code. So one timer of each thread runs on the thread's own processor time, which a process that is stopped or starved
does not spend: it tells soon, and only of the call that computes. The other runs on the time of the day, for calls
that wait, and should be left to stalls of many seconds. Calls that signals interrupt (`EINTR`) are interrupted.

Linux on 64 bits only; elsewhere there are no stacks.
"""

import contextlib
import ctypes
import faulthandler
import signal
import sys
import threading
from typing import Any, Final

__all__ = ["StackTimers"]

_CLOCK_MONOTONIC: Final = 1
# How Linux numbers the processor clock of one thread: the complement of its id, and that it is one (sched, a thread).
_CLOCK_OF_THREAD: Final = 6
_TO_THREAD: Final = 4
# Two handlers that write at once would leave out one of the stacks.
_APART: Final = 0.01
# The first real-time signals are those that others take first.
_SIGNALS_FROM_THE_END: Final = 7


class _Event(ctypes.Structure):
    """`struct sigevent` of Linux on 64 bits."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_byte * 44),
    ]


class _Times(ctypes.Structure):
    """`struct itimerspec`: the interval, 0 for once, and what is left; seconds and nanoseconds each."""

    _fields_ = [
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    ]


class StackTimers:
    """One for a process, which may be called from one thread.

    Attributes:
        is_able: whether this machine has such timers, and standard error is a file.
    """

    def __init__(self) -> None:
        self._calls = _calls()
        self._signal = signal.SIGRTMAX - _SIGNALS_FROM_THE_END if self._calls is not None else 0
        self._timers: dict[int, tuple[ctypes.c_void_p, ...]] = {}
        self.is_able = self._calls is not None and self._handle()

    def put_off(self, seconds: float, *, computing: float) -> None:
        """Have each thread that there is write its stack to standard error, unless called again.

        Args:
            seconds: in so many.
            computing: or once it has used the processor for so many.
        """
        calls = self._calls
        if not self.is_able or calls is None:
            return
        threads = [thread.native_id for thread in threading.enumerate() if thread.native_id is not None]
        for thread in self._timers.keys() - threads:
            self._delete(thread)
        for number, thread in enumerate(threads):
            timers = self._timers.get(thread) or self._create(calls, thread)
            for timer, after in zip(timers, (seconds + number * _APART, computing), strict=False):
                whole, part = divmod(after, 1)
                calls.timer_settime(timer, 0, ctypes.byref(_Times(0, 0, int(whole), int(part * 1e9))), None)

    def stop(self) -> None:
        """Delete the timers of all threads: no more stacks are written."""
        for thread in [*self._timers]:
            self._delete(thread)

    def _handle(self) -> bool:
        try:
            faulthandler.register(self._signal, all_threads=False)
        except (OSError, ValueError, AttributeError, RuntimeError):
            # Where standard error is no file there is nowhere to write to.
            return False
        return True

    def _create(self, calls: Any, thread: int) -> tuple[ctypes.c_void_p, ...]:
        created: list[ctypes.c_void_p] = []
        event = _Event(signal=self._signal, notify=_TO_THREAD, thread=thread)
        for clock in (_CLOCK_MONOTONIC, ~thread << 3 | _CLOCK_OF_THREAD):
            timer = ctypes.c_void_p()
            if calls.timer_create(clock, ctypes.byref(event), ctypes.byref(timer)):
                # The thread has just ended, or the system gives no more timers.
                break
            created.append(timer)
        self._timers[thread] = tuple(created)
        return self._timers[thread]

    def _delete(self, thread: int) -> None:
        for timer in self._timers.pop(thread):
            if self._calls is not None:
                self._calls.timer_delete(timer)


def _calls() -> Any:
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    # Before glibc 2.34 the calls are in a library of their own.
    for name in (None, "librt.so.1"):
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name)
            if all(hasattr(library, call) for call in ("timer_create", "timer_settime", "timer_delete")):
                return library
    return None
