"""Forks: a process forks only while no other thread of it is in SQLite.

SQLite locks its allocator for the whole process. A child has only the thread that forked, so it would wait forever
for a lock that another one held. The same holds for the locks of this package.
"""

import os
import threading
from typing import Final
from weakref import WeakSet

OPENING: Final = threading.RLock()
"""Held to make a lock."""
_locks: Final = WeakSet[threading.RLock]()
_held: Final[list[threading.RLock]] = []


def new_lock() -> threading.RLock:
    """Return a lock to hold while SQLite is called; a fork waits for it.

    It is reentrant, because a signal handler may fork in the thread that holds it.
    """
    lock = threading.RLock()
    with OPENING:
        _locks.add(lock)
    return lock


def _hold_all() -> None:
    OPENING.acquire()
    _held.extend(_locks)
    for lock in _held:
        lock.acquire()


def _release_all() -> None:
    while _held:
        _held.pop().release()
    OPENING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
