"""Orphans that end below a supervisor which is process 1, as in a container without an init.

Linux gives a process whose parent has ended to process 1, and only that one can take it out of the table of
processes. Tasks leave orphans: a program that went into the background, or the children of one that was killed. Where
they pile up, the container runs out of processes.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

__all__ = ["Orphans"]

_INIT: Final = 1
_PROC: Final = Path("/proc")


class Orphans:
    """Collects processes that have ended, are children of this one, and are no one else's to collect.

    A child of the supervisor's own is collected by asyncio within milliseconds of its end, so a process that was
    there at the look before is an orphan. Does nothing but in process 1.
    """

    def __init__(self, *, proc: Path = _PROC) -> None:
        self._proc = proc
        self._is_init = os.getpid() == _INIT
        self._ended: frozenset[int] = frozenset()

    def collect(self) -> None:
        """Collect those that had ended at the look before."""
        if not self._is_init:
            return
        ended = frozenset(self._zombies())
        for pid in ended & self._ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._ended = ended

    def _zombies(self) -> list[int]:
        try:
            entries = [entry for entry in self._proc.iterdir() if entry.name.isdigit()]
        except OSError:
            return []
        return [int(entry.name) for entry in entries if _is_ended_child(entry / "stat")]


def _is_ended_child(stat: Path) -> bool:
    try:
        # The name of the program, in parentheses, may have anything in it.
        state, parent = stat.read_bytes().rpartition(b")")[2].split(maxsplit=2)[:2]
    except (OSError, ValueError):
        # It has gone meanwhile.
        return False
    return state == b"Z" and int(parent) == _INIT
