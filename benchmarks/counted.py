"""How many tasks have run, read often and cheaply: the reader shares the processors with what it measures."""

from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["Counted"]

_SCANS_EVERY: Final = 0.05


class Counted:
    """The sum of cells of which few are in use, one for each thread that has run a task.

    A thread's cell is found within 50 ms of its first task; from then on each look sees it.

    Args:
        cells: the counts, which others write.
        clock: seconds.
    """

    def __init__(self, cells: Sequence[int], clock: Callable[[], float]) -> None:
        self._cells = cells
        self._clock = clock
        self._used: list[int] = []
        self._scanned = float("-inf")

    def total(self) -> int:
        """How many tasks have run."""
        if self._clock() - self._scanned >= _SCANS_EVERY:
            self._used = [place for place, value in enumerate(self._cells) if value]
            self._scanned = self._clock()
        return sum(self._cells[place] for place in self._used)
