"""One daemon thread with an event loop per process, for callers that have none.

It starts on first use, survives nothing: after a fork the child has no portal until it uses one, and the
parent's is never touched from there. Many callers share one wake-up of the loop.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

__all__ = ["Portal", "current_portal"]

T = TypeVar("T")


class Portal:
    """The thread and its loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[tuple[Callable[[], Awaitable[Any]], concurrent.futures.Future[Any]]] = deque()
        self._is_woken = False
        self._is_stopped = False
        self._pending: set[asyncio.Future[Any]] = set()
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="taskmq-io", daemon=True)
        self._thread.start()

    def call(self, start: Callable[[], Awaitable[T]]) -> T:
        """Run `start` on the loop and wait for what it returns.

        Interrupting the wait (Ctrl-C) leaves the call going on.

        Raises:
            RuntimeError: the portal was stopped.
        """
        waiter: concurrent.futures.Future[T] = concurrent.futures.Future()
        with self._lock:
            if self._is_stopped:
                raise RuntimeError("the portal was stopped")
            self._queue.append((start, waiter))
            # Inside the lock, so that what is queued is drained before a stop.
            if not self._is_woken:
                self._is_woken = True
                self.loop.call_soon_threadsafe(self._drain)
        return waiter.result()

    @property
    def is_current(self) -> bool:
        """Whether this is the portal's own thread: waiting for it here would never end."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread; pending calls are cancelled. May be called twice."""
        with self._lock:
            if not self._is_stopped:
                self._is_stopped = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            # A copy: they leave the set as they end.
            if pending := tuple(self._pending):
                for each in pending:
                    each.cancel()
                self.loop.run_until_complete(asyncio.wait(pending))
            self.loop.close()

    def _drain(self) -> None:
        with self._lock:
            calls, self._queue, self._is_woken = self._queue, deque(), False
        for start, waiter in calls:
            try:
                awaitable = start()
                if not isinstance(awaitable, asyncio.Future):
                    coroutine = awaitable if asyncio.iscoroutine(awaitable) else _as_coroutine(awaitable)
                    awaitable = self.loop.create_task(coroutine)
            except Exception as error:  # noqa: BLE001 - handed to the caller that waits in its own thread
                waiter.set_exception(error)
            else:
                self._pending.add(awaitable)
                awaitable.add_done_callback(partial(self._hand_over, waiter))

    def _hand_over(self, waiter: "concurrent.futures.Future[Any]", done: "asyncio.Future[Any]") -> None:
        self._pending.discard(done)
        if done.cancelled():
            waiter.cancel()
            waiter.set_running_or_notify_cancel()
        elif (error := done.exception()) is not None:
            waiter.set_exception(error)
        else:
            waiter.set_result(done.result())


async def _as_coroutine(awaitable: Awaitable[T]) -> T:
    return await awaitable


_portal: Portal | None = None
_guard = threading.Lock()
# What a forked child has inherited stays referenced: collecting it would write to the parent's sockets.
_inherited: list[Portal] = []


def current_portal() -> Portal:
    """This process's portal, started if need be."""
    global _portal  # noqa: PLW0603 - one per process is the point
    with _guard:
        if _portal is None:
            _portal = Portal()
        return _portal


def _after_fork_in_child() -> None:
    global _portal, _guard  # noqa: PLW0603 - the parent's lock may be held by a thread that is not here
    _guard = threading.Lock()
    if _portal is not None:
        _inherited.append(_portal)
        _portal = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
