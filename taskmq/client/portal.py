"""A daemon thread with an event loop, for callers that have none: one per process, and a spare one for its own calls.

It starts on first use and never crosses a fork: the child has no portal until it uses one, and never touches the
parent's. Python may run a finalizer, a signal handler or a logging handler between any two steps of a caller, in the
same thread, and that code may send as well. So no step here holds a lock (the futures, events and queues of the
standard library do), and no caller waits for a thread that has stopped answering.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, Literal, TypeVar, cast

from taskmq.errors import BrokerUnavailable, PublishUnknown

__all__ = ["Portal", "close_on_portals", "current_portal", "is_portal_thread"]

T = TypeVar("T")

_PATIENCE: Final = 30.0
_FINALIZING: Final = (
    "the interpreter is shutting down and has ended taskmq's I/O thread: nothing was sent. Send before the program "
    "ends, or from a function that `atexit` calls"
)


class Portal:
    """The thread and its loop.

    Raises:
        BrokerUnavailable: the interpreter is shutting down and starts no thread.
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
            raise BrokerUnavailable(f"taskmq's I/O thread cannot be started, nothing was sent: {error}") from error

    def call(self, start: Callable[[], Awaitable[T]], *, patience: float = _PATIENCE) -> T:
        """Run `start` on the loop and wait for its result.

        Interrupting the wait (Ctrl-C) leaves the call going on. A call may take as long as it likes; only a thread
        that has stopped turning its loop is given up. Such a thread waits, for example, for the lock of a logging
        handler, which this caller holds because the handler sends.

        Args:
            patience: seconds after which a stuck thread is given up, if its loop has not turned in their second half.

        Raises:
            BrokerUnavailable: the thread is stuck or has gone with the interpreter; the call never begins.
            PublishUnknown: the thread is stuck in the middle of the call.
            RuntimeError: the portal was stopped.
        """
        if self._is_stopped:
            raise RuntimeError("the portal was stopped")
        if sys.is_finalizing():
            raise BrokerUnavailable(_FINALIZING)
        call = _PortalCall(start)
        self._calls.append(call)
        # Each caller wakes the loop itself: one that relied on another's wake-up might have interrupted just that.
        self.loop.call_soon_threadsafe(self._drain)
        while not call.over.wait(patience / 2):
            if not self._is_turning(patience / 2) and not call.over.wait(0):
                raise _stuck(call, patience)
        return call.result()

    @property
    def is_current(self) -> bool:
        """Whether this is the portal's own thread: waiting for it here would never end."""
        return threading.get_ident() == self._thread.ident

    def stop(self) -> None:
        """End the thread; pending calls are cancelled. May be called twice."""
        self.dismiss()
        self._thread.join()

    def dismiss(self) -> None:
        """End the thread without waiting for that."""
        self._is_stopped = True
        # The loop is closed where the thread has ended before.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def _is_turning(self, seconds: float) -> bool:
        """Whether the loop turns within this time."""
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
            # A copy: they leave the set as they end.
            if pending := tuple(self._pending):
                for each in pending:
                    each.cancel()
                self.loop.run_until_complete(asyncio.wait(pending))
        finally:
            self.loop.close()
            # After the closing: a caller that is still on its way finds the loop closed.
            while self._calls:
                self._calls.popleft().finish(error=concurrent.futures.CancelledError())

    def _drain(self) -> None:
        while self._calls:
            call = self._calls.popleft()
            if call.claim():
                self._begin(call)

    def _begin(self, call: "_PortalCall[Any]") -> None:
        try:
            awaitable = call.start()
            if not isinstance(awaitable, asyncio.Future):
                coroutine = awaitable if asyncio.iscoroutine(awaitable) else _as_coroutine(awaitable)
                awaitable = self.loop.create_task(coroutine)
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
    """A sign that one thread gives once and another waits for; neither waits for the other's step to end."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Whether it was set within this time."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True


class _PortalCall(Generic[T]):
    """One caller's call, and what it came to.

    Attributes:
        over: set when there is a result.
    """

    __slots__ = ("_error", "_unclaimed", "_value", "over", "start")

    def __init__(self, start: Callable[[], Awaitable[T]]) -> None:
        self.start = start
        self.over = _Signal()
        self._unclaimed: list[None] = [None]
        self._value: T | None = None
        self._error: BaseException | None = None

    def claim(self) -> bool:
        """Take the right to begin the call, or to withdraw it; only the first that asks gets it."""
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
            # The traceback holds this frame, which would hold the error.
            self._error = error = None


def _stuck(call: "_PortalCall[Any]", patience: float) -> BrokerUnavailable | PublishUnknown:
    stuck = (
        f"taskmq's I/O thread has not answered for {patience:g} s: it runs code that does not end, or waits for a "
        "lock that this thread holds"
    )
    if call.claim():
        return BrokerUnavailable(f"{stuck}. Nothing was sent")
    return PublishUnknown(f"{stuck}. It may still do what it was asked for")


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the loop; a logging handler that fails must not end the loop."""
    try:
        loop.default_exception_handler(context)
    except BaseException:  # noqa: BLE001 - as above
        _print_error()


def _print_error() -> None:
    with contextlib.suppress(BaseException):
        traceback.print_exc(file=sys.__stderr__)


# The standard library makes its event loop policy at the first loop, under a lock that a finalizer could meet.
asyncio.new_event_loop().close()

_Use = Literal["main", "spare"]

_portals: dict[_Use, Portal] = {}
# Portals that a forked child has inherited stay referenced: collecting one would write to the parent's sockets.
_inherited: list[Portal] = []


def current_portal() -> Portal:
    """Return this process's portal, started if need be; for code that runs in its thread, the spare one.

    Finalizers and logging handlers run in any thread, so also in the portal's own, which cannot wait for itself.

    Raises:
        BrokerUnavailable: the interpreter is shutting down and starts no thread.
    """
    main = _started("main")
    return _started("spare") if main.is_current else main


def is_portal_thread() -> bool:
    """Whether this is the thread of one of this process's portals."""
    return any(portal.is_current for portal in tuple(_portals.values()))


def close_on_portals(close: Callable[[], Awaitable[None]]) -> None:
    """Call `close` in each portal that has been started."""
    for portal in tuple(_portals.values()):
        if not portal.is_current:
            portal.call(close)


def _started(use: _Use) -> Portal:
    found = _portals.get(use)
    if found is None:
        started = Portal()
        # In one step: of several that start one at a time, or one inside another, all get the same.
        found = _portals.setdefault(use, started)
        if found is not started:
            started.dismiss()
    return found


def _after_fork_in_child() -> None:
    _inherited.extend(_portals.values())
    _portals.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
