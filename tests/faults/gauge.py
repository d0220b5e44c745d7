"""What processes hold, and whether it grows: memory, descriptors, threads."""

import contextlib
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Gauge", "Sample", "growth", "sample"]

_PAGE_KIB = 4
# Where a worker without a state counts starts: three descriptors from its first redelivery on.
_STARTS = f"{tempfile.gettempdir()}/taskmq-{os.getuid()}/"


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment; resident memory in KiB, descriptors without those of the file of starts."""

    memory: int
    descriptors: int
    threads: int


def sample(pid: int) -> Sample:
    """What the process holds now."""
    root = Path(f"/proc/{pid}")
    return Sample(
        memory=int((root / "statm").read_text().split()[1]) * _PAGE_KIB,
        descriptors=_descriptors(root / "fd"),
        threads=len([*(root / "task").iterdir()]),
    )


def _descriptors(folder: Path) -> int:
    count = 0
    for each in folder.iterdir():
        # It may be closed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            count += not str(each.readlink()).startswith(_STARTS)
    return count


def growth(samples: Sequence[Sample], *, ends: int) -> Sample:
    """How much the median of the last `ends` samples is above that of the first."""
    first, last = samples[:ends], samples[-ends:]

    def grown(fact: str) -> int:
        early, late = ([int(getattr(each, fact)) for each in group] for group in (first, last))
        return round(statistics.median(late) - statistics.median(early))

    return Sample(memory=grown("memory"), descriptors=grown("descriptors"), threads=grown("threads"))


class Gauge:
    """Samples of several processes over a campaign."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self.samples: dict[str, list[Sample]] = {name: [] for name in pids}

    def read(self) -> None:
        for name, pid in self._pids.items():
            self.samples[name].append(sample(pid))

    def growth(self, *, ends: int) -> dict[str, Sample]:
        return {name: growth(samples, ends=ends) for name, samples in self.samples.items()}
