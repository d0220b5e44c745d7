"""Calls onto an event loop from any thread."""

import asyncio
import threading
from collections.abc import Callable


def call_on(loop: asyncio.AbstractEventLoop, thread: int, callback: Callable[[], None]) -> None:
    """Make `loop`, which runs in `thread`, call `callback` soon; do nothing if the loop is closed."""
    if thread == threading.get_ident():
        if not loop.is_closed():
            loop.call_soon(callback)
        return
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:  # the loop was closed: no caller waits any more
        return


class LoopWakeup:
    """Runs `callback` on the loop that created it, once for all `fire` calls since the last run."""

    __slots__ = ("_callback", "_fired", "_loop", "_thread")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._fired = False

    def fire(self) -> None:
        # Two threads may both see False: then the callback runs twice, which it must tolerate anyway.
        if not self._fired:
            self._fired = True
            call_on(self._loop, self._thread, self._run)

    def _run(self) -> None:
        # Cleared first, so that later changes fire again.
        self._fired = False
        self._callback()
