"""Cheap counter of finished tasks: the reader shares the processors with the workers it measures."""

from collections.abc import Callable, Sequence
from typing import Final

_SCANS_EVERY: Final = 0.05


class Counted:
    """Sum of many cells of which few are used: one for each thread that has run a task.

    A thread's cell is found within 50 ms of its first task; from then on every call includes it.

    Args:
        cells: the counts, written by other processes.
        clock: returns seconds.
    """

    def __init__(self, cells: Sequence[int], clock: Callable[[], float]) -> None:
        self._cells = cells
        self._clock = clock
        self._used: list[int] = []
        self._scanned = float("-inf")

    def total(self) -> int:
        """Return the number of finished tasks."""
        if self._clock() - self._scanned >= _SCANS_EVERY:
            self._used = [index for index, value in enumerate(self._cells) if value]
            self._scanned = self._clock()
        return sum(self._cells[index] for index in self._used)
