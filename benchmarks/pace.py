"""Estimate of a session's remaining time from the duration of its past runs."""

from collections.abc import Sequence
from statistics import fmean


class Pace:
    """Seconds per run, by cell and by piece of work.

    A cell without runs is estimated from cells of the same work, or else from all cells.
    """

    def __init__(self) -> None:
        self._by_cell: dict[object, list[float]] = {}
        self._by_work: dict[str, list[float]] = {}

    def record(self, cell: object, work: str, seconds: float) -> None:
        """Record the duration of a run of this cell."""
        self._by_cell.setdefault(cell, []).append(seconds)
        self._by_work.setdefault(work, []).append(seconds)

    def left(self, ahead: Sequence[tuple[object, str]]) -> float | None:
        """Estimate the seconds for the runs ahead, given as (cell, work); None before the first run."""
        if not self._by_work:
            return None
        anything = fmean(seconds for each in self._by_work.values() for seconds in each)
        return sum(self._estimate(cell, work, anything) for cell, work in ahead)

    def _estimate(self, cell: object, work: str, anything: float) -> float:
        known = self._by_cell.get(cell) or self._by_work.get(work)
        return fmean(known) if known else anything


def clock_text(seconds: float | None) -> str:
    """Format seconds as `3:07`, or `?` if unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    return f"{minutes}:{rest:02}"
