"""Owners of leases, and whether they are alive.

An owner is a file `owners/NAME` that its process keeps locked. The kernel releases the lock when the process dies, by
whatever means, and only then: a stopped or busy process keeps it. Trying the lock shows whether an owner is alive.

POSIX locks belong to a process, and closing *any* descriptor of the file drops them. So no code may open the file of
an owner of its own process: those are recognized by name and process id, since a forked child does not inherit the
locks.
"""

import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from taskmq_embedded.place import make_private_folder

_GRACE = 60.0

_mine: dict[int, set[str]] = {}


class Owner:
    """A name under which this process holds messages; it counts as alive until `release` or the process's end."""

    def __init__(self, root: Path) -> None:
        """Create and lock the file.

        Raises:
            OSError: the file cannot be created or locked.
        """
        self.name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._path = _file(root, self.name)
        make_private_folder(root)
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _mine.setdefault(os.getpid(), set()).add(self.name)
        # No other process knows the name yet, so the lock must be free.
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Let the owner count as dead. May be called twice."""
        if self._fd < 0:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = -1
        _mine.get(os.getpid(), set()).discard(self.name)


def is_alive(root: Path, name: str) -> bool:
    """Whether the owner's process is alive. An owner without a file is dead."""
    if name in _mine.get(os.getpid(), ()):
        return True
    try:
        fd = os.open(_file(root, name), os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        # Unknown, for example for lack of descriptors: taking messages from a living owner would be worse.
        return True
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def remove_owner(root: Path, name: str) -> None:
    """Remove the files of a dead owner."""
    with suppress(OSError):
        for path in (root / "wake").glob(f"*-{name}"):
            path.unlink(missing_ok=True)
        _file(root, name).unlink(missing_ok=True)


def collect_dead_owners(root: Path) -> None:
    """Remove files of dead owners without data; young files may belong to owners that are starting."""
    with suppress(OSError):
        for entry in list(os.scandir(root / "owners")):
            if entry.stat().st_mtime < time.time() - _GRACE and not is_alive(root, entry.name):
                remove_owner(root, entry.name)


def _file(root: Path, name: str) -> Path:
    return root / "owners" / name
