"""Who holds messages, and whether they are alive.

An owner is a file `owners/NAME` that its process keeps locked. The kernel lets go of the lock when the process
dies, by whatever means, and only then: a process that is merely stopped or busy keeps it. To see whether an
owner is alive, one tries its lock.

POSIX locks belong to a process, and closing *any* descriptor of the file drops them. So no other code may open the
file of an owner of its own process: those are known by name, per process id, for a forked child is another process
and does not inherit the locks.
"""

import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from taskmq_embedded.place import make_private_folder

__all__ = ["Owner", "collect_dead_owners", "is_alive", "remove_owner"]

_GRACE = 60.0

_mine: dict[int, set[str]] = {}


class Owner:
    """A name under which this process holds messages, seen as alive until `release` or the process's end."""

    def __init__(self, root: Path) -> None:
        """Make and lock the file.

        Raises:
            OSError: the file cannot be made or locked.
        """
        self.name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._path = _file(root, self.name)
        make_private_folder(root)
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _mine.setdefault(os.getpid(), set()).add(self.name)
        # No process has heard the name yet, so none can have the lock.
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Be seen as gone. May be called twice."""
        if self._fd < 0:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = -1
        _mine.get(os.getpid(), set()).discard(self.name)


def is_alive(root: Path, name: str) -> bool:
    """Whether the owner's process lives. An owner without a file is dead."""
    if name in _mine.get(os.getpid(), ()):
        return True
    try:
        fd = os.open(_file(root, name), os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        # It is unknown, for example for want of descriptors: taking messages from the living is worse.
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
    """Bury the dead who left nothing but their file; young files may be those of owners in the making."""
    with suppress(OSError):
        for entry in list(os.scandir(root / "owners")):
            if entry.stat().st_mtime < time.time() - _GRACE and not is_alive(root, entry.name):
                remove_owner(root, entry.name)


def _file(root: Path, name: str) -> Path:
    return root / "owners" / name
