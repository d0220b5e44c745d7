"""Collection of orphans by a supervisor that is process 1, as in a container without an init.

Linux reparents a process whose parent has ended to process 1, and only that one can remove it from the process table.
Tasks leave orphans: a program in the background, or the children of a killed one. If they accumulate, the container
runs out of processes.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

_INIT: Final = 1
_PROC: Final = Path("/proc")


class Orphans:
    """Collects processes that have ended, are children of this one, and belong to no other collector.

    asyncio collects a child of the supervisor within milliseconds of its end, so a process that had ended at the
    previous check is an orphan. Does nothing except in process 1.
    """

    def __init__(self, *, proc: Path = _PROC) -> None:
        self._proc = proc
        self._is_init = os.getpid() == _INIT
        self._ended: frozenset[int] = frozenset()

    def collect(self) -> None:
        """Collect processes that had ended at the previous check."""
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
        # The name of the program, in parentheses, may contain anything.
        state, parent = stat.read_bytes().rpartition(b")")[2].split(maxsplit=2)[:2]
    except (OSError, ValueError):
        # It is gone meanwhile.
        return False
    return state == b"Z" and int(parent) == _INIT
