"""Enforcement of an executor process's memory limit.

    cgroup v1    if this process may create groups below its own memory group: the kernel counts the memory of the
    or v2        process and its children from its first such run on, and kills when that exceeds the limit
    elsewhere    the process's resident memory is checked 20 times a second, including all that it has imported

An address-space limit (`RLIMIT_AS`) is not used: libraries and threads reserve far more than they use.
"""

import contextlib
import itertools
import os
from pathlib import Path
from typing import Final

CHECK_INTERVAL: Final = 0.05
"""Seconds between two checks of a process that is in no group."""

_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")
_numbers: Final = itertools.count(1)
_left_over: Final[set[Path]] = set()


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if the system does not report it, or it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class MemoryGroup:
    """A control group with one process and its children.

    Attributes:
        folder: its folder in the file system.
    """

    def __init__(self, folder: Path, *, limit: str, events: str, unlimited: str) -> None:
        self.folder = folder
        self._limit = folder / limit
        self._events = folder / events
        self._unlimited = unlimited
        self._kills = 0

    @classmethod
    def around(cls, pid: int) -> "MemoryGroup | None":
        """Create a group with the process in it; None if this process may not create one."""
        for parent, limit, events, unlimited in _places():
            _sweep(parent)
            folder = parent / f"taskmq-{os.getpid()}-{next(_numbers)}"
            try:
                folder.mkdir()
            except OSError:
                continue
            group = cls(folder, limit=limit, events=events, unlimited=unlimited)
            try:
                # In version 2 the file exists only if the controller was delegated.
                group._limit.read_text(encoding="ascii")
                (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
            except OSError:
                group.remove()
                continue
            return group
        return None

    def limit(self, size: int) -> None:
        """Limit the memory to this many bytes from now on.

        Raises:
            OSError: it uses more already.
        """
        self._kills = self._count()
        self._limit.write_text(str(size), encoding="ascii")

    def lift(self) -> None:
        """Lift the limit: the memory allowed before is allowed again."""
        with contextlib.suppress(OSError):
            self._limit.write_text(self._unlimited, encoding="ascii")

    @property
    def has_killed(self) -> bool:
        """Whether the kernel has killed a process in it since `limit`."""
        return self._count() > self._kills

    def remove(self) -> None:
        """Remove the group of an ended process. If a child of that has not ended yet, the next call removes it."""
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
    """Remove the groups of workers that were killed; a group with a process stays."""
    with contextlib.suppress(OSError):
        for folder in parent.glob("taskmq-*-*"):
            owner = folder.name.split("-")[1]
            if not Path(f"/proc/{owner}").exists():
                folder.rmdir()


def _places() -> list[tuple[Path, str, str, str]]:
    """Return candidates for a group: the folder, and the names of its files."""
    places: list[tuple[Path, str, str, str]] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if "memory" in controllers.split(","):
                # A container may see its own group as the root of the mount.
                places += [
                    (folder, "memory.limit_in_bytes", "memory.oom_control", "-1")
                    for folder in dict.fromkeys((_V1 / path.lstrip("/"), _V1))
                ]
            elif number == "0" and not controllers:
                places.append((_V2 / path.lstrip("/"), "memory.max", "memory.events", "max"))
    return places
