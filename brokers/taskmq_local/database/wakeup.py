"""Wakeups of waiting processes after commits, without polling.

A waiting process has a FIFO `wake/KIND-OWNER`, which it reads on its event loop. After a commit, a process writes one
byte into every FIFO of the kind. A wakeup carries no data and may be spurious. A lost one is made up for by the poll
that every waiting process does once a second.
"""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from taskmq_local.database.owners import Owner, is_alive, remove_owner
from taskmq_local.database.state_database import Kind

_ENOUGH: Final = 65_536


class Wakeup:
    """Calls `heard` on this loop after each wakeup of `kind`."""

    def __init__(self, root: Path, owner: Owner, kind: Kind, heard: Callable[[], None]) -> None:
        """Create the FIFO.

        Raises:
            OSError: the FIFO cannot be created.
        """
        self._path = root / "wake" / f"{kind}-{owner.name}"
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.mkfifo(self._path, 0o600)
        # Open for writing too, or reads would return end of file while no writer has it open.
        self._fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
        self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Remove the FIFO. May be called twice."""
        if self._fd < 0:
            return
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _read(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, _ENOUGH)
        self._heard()


def notify(root: Path, kind: str) -> None:
    """Wake all processes that wait for `kind`. Never blocks or fails; removes FIFOs of dead owners."""
    directory = root / "wake"
    try:
        names = os.listdir(directory)  # noqa: PTH208 - runs after every commit: no Path objects
    except OSError:
        return
    for name in names:
        if name.startswith(kind):
            _write_byte(root, f"{directory}/{name}", name.partition("-")[2])


def _write_byte(root: Path, path: str, owner: str) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        # No process reads it: its owner is dead, or about to open it.
        if error.errno == errno.ENXIO and not is_alive(root, owner):
            remove_owner(root, owner)
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"!")
    except OSError:
        # Full: the reader has a wakeup pending anyway.
        pass
    finally:
        os.close(fd)
