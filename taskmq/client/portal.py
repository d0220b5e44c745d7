"""A daemon thread with an event loop for callers without one: one per process, and a spare one for its own calls.

It starts on first use and never crosses a fork: a child process has no portal until it uses one, and never touches
the parent's. Python may run a finalizer, signal handler or logging handler between any two steps of a caller, in the
same thread, and that code may send too. So no step here holds a lock (the standard library's futures, events and
queues do), and no caller waits for a thread that stopped responding.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar, cast

from taskmq.errors import BrokerUnavailable, PublishUnknown

T = TypeVar("T")

_PATIENCE: Final = 30.0
_FINALIZING: Final = (
    "the interpreter is shutting down and stopped taskmq's I/O thread: nothing was sent. Send before the program "
    "ends, or from a function that `atexit` calls"
)


class Portal:
    """The thread and its loop.

    Raises:
        BrokerUnavailable: the interpreter is shutting down and starts no threads.
    """

    def __init__(self) -> None:
        if sys.is_finalizing():
            raise BrokerUnavailable(_FINALIZING)
        self._calls: deque[_PortalCall[Any]] = deque()
        self._is_stopped = False
        self._pending: set[asyncio.Future[Any]] = set()
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.loop.set_exception_handler(_report)
        self._thread = threading.Thread(target=self._serve, name="taskmq-io", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.loop.close()
            raise BrokerUnavailable(f"taskmq's I/O thread failed to start, nothing was sent: {error}") from error

    def call(self, start: Callable[[], Awaitable[T]], *, patience: float = _PATIENCE) -> T:
        """Run `start` on the loop and wait for its result.

        Interrupting the wait (Ctrl-C) does not cancel the call. A call may take any time; only a stuck thread, whose
        loop does not run, is abandoned. Such a thread may wait for the lock of a logging handler that this caller
        holds because the handler sends.

        Args:
            patience: seconds until a stuck thread is abandoned, if its loop did not run in the second half of them.

        Raises:
            BrokerUnavailable: the thread is stuck or ended with the interpreter; the call never starts.
            PublishUnknown: the thread is stuck in the middle of the call.
            RuntimeError: the portal was stopped.
        """
        if self._is_stopped:
            raise RuntimeError("the portal was stopped")
        if sys.is_finalizing():
            raise BrokerUnavailable(_FINALIZING)
        call = _PortalCall(start)
        self._calls.append(call)
        # Each caller wakes the loop itself, because it may have interrupted another caller's wake-up.
        self.loop.call_soon_threadsafe(self._drain)
        while not call.over.wait(patience / 2):
            if not self._is_turning(patience / 2) and not call.over.wait(0):
                raise _stuck(call, patience)
        return call.result()

    @property
    def is_current(self) -> bool:
        """Whether this is the portal's own thread, where waiting for it would deadlock."""
        return threading.get_ident() == self._thread.ident

    def stop(self) -> None:
        """Stop the thread. Pending calls are cancelled. May be called twice."""
        self.dismiss()
        self._thread.join()

    def dismiss(self) -> None:
        """Stop the thread without waiting for it."""
        self._is_stopped = True
        # The loop is closed if the thread has already ended.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def _is_turning(self, seconds: float) -> bool:
        """Return whether the loop runs within this time."""
        turns = _Signal()
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(turns.set)
        return turns.wait(seconds)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_stopped:
            try:
                self.loop.run_forever()
            except BaseException:  # noqa: BLE001 - code that runs here must not end the thread that all callers share
                _print_error()
        try:
            # A copy, because they leave the set as they end.
            if pending := tuple(self._pending):
                for each in pending:
                    each.cancel()
                self.loop.run_until_complete(asyncio.wait(pending))
        finally:
            self.loop.close()
            # After closing the loop: a caller that arrives now finds it closed.
            while self._calls:
                self._calls.popleft().finish(error=concurrent.futures.CancelledError())

    def _drain(self) -> None:
        while self._calls:
            call = self._calls.popleft()
            if call.claim():
                self._begin(call)

    def _begin(self, call: "_PortalCall[Any]") -> None:
        try:
            awaitable = call.context.run(call.start)
            if not isinstance(awaitable, asyncio.Future):
                coroutine = awaitable if asyncio.iscoroutine(awaitable) else _as_coroutine(awaitable)
                awaitable = self.loop.create_task(coroutine, context=call.context)
        except BaseException as error:  # noqa: BLE001 - handed to the caller that waits in its own thread
            call.finish(error=error)
        else:
            self._pending.add(awaitable)
            awaitable.add_done_callback(partial(self._finish, call))

    def _finish(self, call: "_PortalCall[Any]", done: "asyncio.Future[Any]") -> None:
        self._pending.discard(done)
        if done.cancelled():
            call.finish(error=concurrent.futures.CancelledError())
        elif (error := done.exception()) is not None:
            call.finish(error=error)
        else:
            call.finish(done.result())


class _Signal:
    """An event that one thread sets once and another waits for, without blocking each other."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Return whether it was set within this time."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True


class _PortalCall(Generic[T]):
    """A caller's call and its outcome.

    Attributes:
        context: the caller's context variables.
        over: set when there is a result.
    """

    __slots__ = ("_error", "_unclaimed", "_value", "context", "over", "start")

    def __init__(self, start: Callable[[], Awaitable[T]]) -> None:
        self.start = start
        self.context = contextvars.copy_context()
        self.over = _Signal()
        self._unclaimed: list[None] = [None]
        self._value: T | None = None
        self._error: BaseException | None = None

    def claim(self) -> bool:
        """Claim the right to start or withdraw the call. Only the first caller gets it."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
        return True

    def finish(self, value: T | None = None, *, error: BaseException | None = None) -> None:
        self._value, self._error = value, error
        self.over.set()

    def result(self) -> T:
        if (error := self._error) is None:
            return cast("T", self._value)
        try:
            raise error
        finally:
            # The traceback refers to this frame, which would keep the error alive.
            self._error = error = None


def _stuck(call: "_PortalCall[Any]", patience: float) -> BrokerUnavailable | PublishUnknown:
    stuck = (
        f"taskmq's I/O thread has not answered for {patience:g} s: it runs code that does not end, or waits for a "
        "lock that this thread holds"
    )
    if call.claim():
        return BrokerUnavailable(f"{stuck}. Nothing was sent")
    return PublishUnknown(f"{stuck}. The call may still be executed")


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the loop. A failing logging handler must not end the loop."""
    try:
        loop.default_exception_handler(context)
    except BaseException:  # noqa: BLE001 - as above
        _print_error()


def _print_error() -> None:
    with contextlib.suppress(BaseException):
        traceback.print_exc(file=sys.__stderr__)


# The standard library creates its event loop policy with the first loop, under a lock that a finalizer could meet.
asyncio.new_event_loop().close()

_Use = Literal["main", "spare"]

_portals: dict[_Use, Portal] = {}
# Portals inherited by a forked child stay referenced, because collecting one would write to the parent's sockets.
_inherited: list[Portal] = []


def current_portal() -> Portal:
    """Return this process's portal, starting it if needed; for code in its own thread, the spare one.

    Finalizers and logging handlers run in any thread, including the portal's own, which cannot wait for itself.

    Raises:
        BrokerUnavailable: the interpreter is shutting down and starts no threads.
    """
    main = _start_portal("main")
    return _start_portal("spare") if main.is_current else main


def is_portal_thread() -> bool:
    """Return whether this is the thread of one of this process's portals."""
    return any(portal.is_current for portal in tuple(_portals.values()))


def close_on_portals(close: Callable[[], Awaitable[None]]) -> None:
    """Call `close` in each portal that was started."""
    for portal in tuple(_portals.values()):
        if not portal.is_current:
            portal.call(close)


def _start_portal(use: _Use) -> Portal:
    found = _portals.get(use)
    if found is None:
        started = Portal()
        # Atomic, so that concurrent or nested starts all get the same portal.
        found = _portals.setdefault(use, started)
        if found is not started:
            started.dismiss()
    return found


def _after_fork_in_child() -> None:
    _inherited.extend(_portals.values())
    _portals.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
