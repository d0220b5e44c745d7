"""Raising of `SoftTimeout` inside a running function: one way for each kind of executor.

    coroutine     its worker task is cancelled, and the exception thrown into the coroutine is replaced on the way in
    thread        an exception that the interpreter raises at the thread's next instruction in Python; a call into C
                  must return first. It never outlives the function: a late one is raised and dropped. It is not
                  raised inside of the standard library's locks, which could stay locked for all others
    process       a signal (SIGALRM) in the main thread, which also ends system calls

The exception in a coroutine is a `CancelledError`, too, so that whatever it waits in (task groups, timeouts,
third-party libraries) cleans up as it does for every cancellation.
"""

import asyncio
import ctypes
import inspect
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any, Final, Literal, Self

from taskmq.errors import SoftTimeout
from taskmq.run.thread_frames import frame_of_thread

Result = tuple[object, BaseException | None]
"""The function's return value, or its exception."""

_AGAIN: Final = 0.001
# Including the coverage tool, because it locks in every thread.
_GUARDED: Final = frozenset({"logging", "threading", "importlib", "queue", "weakref", "_weakrefset", "coverage"})
# The interpreter checks for an exception at each turn.
_TURNS: Final = 3


class _Interrupted(SoftTimeout, asyncio.CancelledError):
    """The exception as it appears inside of a coroutine."""


class CoroutineInterrupt(Generator[Any, Any, Any]):
    """A coroutine that can be interrupted; awaited once, by the task that creates it.

    Outside, it ends with a plain `SoftTimeout`.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, object], *, words: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._coroutine = coroutine
        self._task = task
        self._words = words
        self._is_asked = False

    def __await__(self) -> Self:
        return self

    def interrupt(self) -> None:
        """Raise `SoftTimeout` where the coroutine waits; does nothing if it is being cancelled, or has ended."""
        if not self._task.cancelling() and inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CLOSED:
            self._is_asked = True
            self._task.cancel()

    def forget(self) -> None:
        """Drop an interrupt that the ended coroutine may have left with an awaitable."""
        if self._is_asked:
            self._is_asked = False
            self._task.uncancel()

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:  # noqa: ARG002 - as generators have it
        if self._is_asked and isinstance(error, asyncio.CancelledError):
            self._is_asked = False
            # Other code may have cancelled the task in the same turn: that takes precedence.
            if not self._task.uncancel():
                error = _Interrupted(self._words)
        return self._step(self._coroutine.throw, error)

    def close(self) -> None:
        self._coroutine.close()

    def _step(self, step: Callable[[Any], Any], value: Any) -> Any:
        try:
            return step(value)
        except _Interrupted as error:
            # No longer a cancellation: the task continues to its next await.
            raise SoftTimeout(self._words).with_traceback(error.__traceback__) from None


class ThreadInterrupt:
    """A call in a thread that can be interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ident = 0
        self._is_inside = False

    def interrupt(self) -> Literal["raised", "later", "over"]:
        """Raise `SoftTimeout` in the call. May be called from any thread.

        `later` means that it has not started, or is where an exception would do harm; ask again soon. `over` means
        that it has returned.
        """
        with self._lock:
            if not self._is_inside:
                return "over" if self._ident else "later"
            if _is_guarded(self._ident):
                return "later"
            _raise_in(self._ident, SoftTimeout)
            return "raised"

    def call(self, function: Callable[[], object]) -> Result:
        """Call `function` and return its result. When this returns, no interrupt is left."""
        self._ident = threading.get_ident()
        result: Result | None = None
        try:
            result = self._enter(function)
            self._leave()
        except SoftTimeout as late:
            # Raised between the function's end and here. There is one at most, so no other follows.
            self._leave()
            if result is None:
                result = None, late
        return result

    def _enter(self, function: Callable[[], object]) -> Result:
        self._is_inside = True
        try:
            return function(), None
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its own
            return None, error

    def _leave(self) -> None:
        with self._lock:
            self._is_inside = False
        # A pending exception is raised here. Taking it back would leave the interpreter with a wrong flag, which
        # costs time at every turn of a loop, and hangs CPython 3.11 under a tracer.
        for _ in range(_TURNS):
            pass


def _is_guarded(ident: int) -> bool:
    """Return whether the thread runs code that takes locks by hand and must not end before the `try`."""
    frame = frame_of_thread(ident)
    return frame is None or str(frame.f_globals.get("__name__")).partition(".")[0] in _GUARDED


def _raise_in(ident: int, kind: type[BaseException]) -> None:
    """Raise an exception at the thread's next turn of a loop, or call."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind))


def call_with_alarm(function: Callable[[], object], seconds: float, *, words: str) -> object:
    """Return the result of `function`; raise `SoftTimeout` inside after `seconds`. Only for the main thread."""
    is_over = False

    def ring(_: int, frame: FrameType | None) -> None:
        if is_over:
            return
        if frame is not None and frame.f_code is call_with_alarm.__code__:
            # It has not started, or it has just returned.
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        raise SoftTimeout(words)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        return function()
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
