"""Frames of this process's threads, read without a deadlock.

`sys._current_frames` holds a lock of the interpreter while it creates the frames. Before CPython 3.11.6 and 3.12 a
garbage collection may start there. If that runs code, another thread gets the GIL. If this thread ends, it waits for
the lock with the GIL, and the process hangs forever: no Python code runs any more. So no collection may start.
"""

import gc
import sys
import threading
from types import FrameType
from typing import Final

# Otherwise, the first of two calls would enable collections during the second one.
_lock: Final = threading.RLock()


def frame_of_thread(ident: int | None) -> FrameType | None:
    """Return the current frame of a thread; None if it has none, or there is no such thread."""
    if ident is None:
        return None
    return frames_of_threads().get(ident)


def frames_of_threads() -> dict[int, FrameType]:
    """Return the current frame of each thread, by the thread's id.

    May be called from any thread.
    """
    with _lock:
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            # Documented, and meant for this purpose, in spite of its name.
            return sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        finally:
            if is_enabled:
                gc.enable()
