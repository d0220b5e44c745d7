"""Keeping an executor process within the memory that its run was given.

    cgroup v1    where this process may make groups below its own memory group: the kernel counts what the process and
    or v2        what it starts take from its first such run on, and kills when that is too much
    elsewhere    the process's resident memory is looked at 20 times a second, all that it has imported included

An address-space limit (`RLIMIT_AS`) is not used: libraries and threads reserve far more than they take.
"""

import contextlib
import itertools
import os
from pathlib import Path
from typing import Final

__all__ = ["LOOKS", "MemoryGroup", "resident_bytes"]

LOOKS: Final = 0.05
"""Seconds between two looks at a process that is in no group."""

_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")
_numbers: Final = itertools.count(1)
_left_over: Final[set[Path]] = set()


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM; 0 where the system does not tell, or it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class MemoryGroup:
    """A control group with one process in it, and what that starts.

    Attributes:
        folder: where the system shows it.
    """

    def __init__(self, folder: Path, *, limit: str, events: str, unlimited: str) -> None:
        self.folder = folder
        self._limit = folder / limit
        self._events = folder / events
        self._unlimited = unlimited
        self._kills = 0

    @classmethod
    def around(cls, pid: int) -> "MemoryGroup | None":
        """A new group with the process in it; None where this process may not make one."""
        for parent, limit, events, unlimited in _places():
            _sweep(parent)
            folder = parent / f"taskmq-{os.getpid()}-{next(_numbers)}"
            try:
                folder.mkdir()
            except OSError:
                continue
            group = cls(folder, limit=limit, events=events, unlimited=unlimited)
            try:
                # In version 2 the file is there only where the controller was delegated.
                group._limit.read_text(encoding="ascii")
                (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
            except OSError:
                group.remove()
                continue
            return group
        return None

    def limit(self, size: int) -> None:
        """Allow so many bytes from now on.

        Raises:
            OSError: it has more already.
        """
        self._kills = self._count()
        self._limit.write_text(str(size), encoding="ascii")

    def lift(self) -> None:
        """Lift the limit: as much memory as before is allowed again."""
        with contextlib.suppress(OSError):
            self._limit.write_text(self._unlimited, encoding="ascii")

    @property
    def has_killed(self) -> bool:
        """Whether the kernel has killed something in it since `limit`."""
        return self._count() > self._kills

    def remove(self) -> None:
        """Remove it; its process has ended. Where something that it started has not yet, the next call does it."""
        _left_over.add(self.folder)
        for folder in tuple(_left_over):
            with contextlib.suppress(OSError):
                folder.rmdir()
            if not folder.exists():
                _left_over.discard(folder)

    def _count(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            for line in self._events.read_text(encoding="ascii").splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0


def _sweep(parent: Path) -> None:
    """Remove the groups of workers that were killed; one with a process in it stays."""
    with contextlib.suppress(OSError):
        for folder in parent.glob("taskmq-*-*"):
            owner = folder.name.split("-")[1]
            if not Path(f"/proc/{owner}").exists():
                folder.rmdir()


def _places() -> list[tuple[Path, str, str, str]]:
    """Where a group could be made: the folder, and the names of its files."""
    places: list[tuple[Path, str, str, str]] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "memory" in controllers.split(","):
                # A container may see its own group as the root of what is mounted.
                places += [
                    (folder, "memory.limit_in_bytes", "memory.oom_control", "-1")
                    for folder in dict.fromkeys((_V1 / path.lstrip("/"), _V1))
                ]
            elif number == "0" and not controllers:
                places.append((_V2 / path.lstrip("/"), "memory.max", "memory.events", "max"))
    return places
