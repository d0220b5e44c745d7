"""Resources of processes, and their growth: memory, descriptors, threads."""

import contextlib
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PAGE_KIB = 4
# The file in which a worker without a state counts starts: three descriptors from its first redelivery on.
_STARTS = f"{tempfile.gettempdir()}/taskmq-{os.getuid()}/"


@dataclass(frozen=True, slots=True)
class Sample:
    """A process at one moment; resident memory in KiB, descriptors without those of the file of starts."""

    memory: int
    descriptors: int
    threads: int


def sample(pid: int) -> Sample:
    """Return the present resources of the process."""
    root = Path(f"/proc/{pid}")
    return Sample(
        memory=int((root / "statm").read_text().split()[1]) * _PAGE_KIB,
        descriptors=_descriptors(root / "fd"),
        threads=len([*(root / "task").iterdir()]),
    )


def _descriptors(folder: Path) -> int:
    count = 0
    for each in folder.iterdir():
        # It may be closed in the meantime.
        with contextlib.suppress(FileNotFoundError):
            count += not str(each.readlink()).startswith(_STARTS)
    return count


def growth(samples: Sequence[Sample], *, ends: int) -> Sample:
    """Return the difference between the medians of the last and the first `ends` samples."""
    first, last = samples[:ends], samples[-ends:]

    def growth_of(fact: str) -> int:
        early, late = ([int(getattr(each, fact)) for each in group] for group in (first, last))
        return round(statistics.median(late) - statistics.median(early))

    return Sample(memory=growth_of("memory"), descriptors=growth_of("descriptors"), threads=growth_of("threads"))


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
