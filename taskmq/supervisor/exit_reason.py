"""Reason of a worker process's end, as far as the system knows it."""

import contextlib
import signal
from pathlib import Path
from typing import Final, Literal

import msgspec

How = Literal["exit", "signal", "out of memory"]

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


class ExitReason(msgspec.Struct, frozen=True):
    """The reason of a worker process's end.

    Attributes:
        code: as `subprocess` defines it: negative for a signal.
        is_out_of_memory: whether the system killed a process of this control group for its memory meanwhile.
    """

    code: int
    is_out_of_memory: bool = False

    @property
    def how(self) -> How:
        """Kind of the end, for counting."""
        if self.code >= 0:
            return "exit"
        return "out of memory" if self.is_out_of_memory else "signal"

    def __str__(self) -> str:
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        name = str(-self.code)
        with contextlib.suppress(ValueError):
            name = signal.Signals(-self.code).name
        return f"was killed by {name}" + (": out of memory" if self.is_out_of_memory else "")


class OutOfMemory:
    """Detects kills for memory by the counters of this process's control group.

    A kill by the whole machine, outside of any limit of a group, is in no counter that may be read without
    privileges: it looks like an ordinary SIGKILL.

    Args:
        own: the file that names this process's group.
        groups: mount point of the groups.
    """

    def __init__(self, own: Path = _OWN, groups: Path = _CGROUPS) -> None:
        self._counter = _counter(own, groups)
        self._seen = self._count()

    def explains(self, code: int) -> bool:
        """Return whether a process that ended with `code` just now was killed for memory."""
        count = self._count()
        has_grown = count > self._seen
        self._seen = count
        return has_grown and code == -signal.SIGKILL

    def ending(self, code: int) -> ExitReason:
        return ExitReason(code, is_out_of_memory=self.explains(code))

    def _count(self) -> int:
        if self._counter is None:
            return 0
        try:
            words = self._counter.read_text(encoding="ascii").split()
        except OSError:
            return 0
        # Lines of a name and a number.
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words[::2] else 0


def _counter(own: Path, groups: Path) -> Path | None:
    """Return the file with the counter: of the unified hierarchy, else of the memory controller's own."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inside = path.lstrip("/")
        if number == "0" and not controllers:
            candidates = [groups / inside / "memory.events", groups / "memory.events"]
        elif "memory" in controllers.split(","):
            # A container sees its own group as the root of the mount.
            candidates = [groups / "memory" / inside / "memory.oom_control", groups / "memory" / "memory.oom_control"]
        else:
            continue
        for file in candidates:
            if file.is_file():
                return file
    return None
