"""How long a session still takes, from how long its cells have taken so far."""

from collections.abc import Sequence
from statistics import fmean

__all__ = ["Pace", "clock_text"]


class Pace:
    """Seconds per run, by cell and by piece of work.

    A cell that has not been run yet is taken to last as long as those of the same work, or else as all.
    """

    def __init__(self) -> None:
        self._by_cell: dict[object, list[float]] = {}
        self._by_work: dict[str, list[float]] = {}

    def took(self, cell: object, work: str, seconds: float) -> None:
        """A run of this cell has ended."""
        self._by_cell.setdefault(cell, []).append(seconds)
        self._by_work.setdefault(work, []).append(seconds)

    def left(self, ahead: Sequence[tuple[object, str]]) -> float | None:
        """Seconds for the runs ahead, each given by its cell and its work; None as long as nothing is known."""
        if not self._by_work:
            return None
        anything = fmean(seconds for each in self._by_work.values() for seconds in each)
        return sum(self._one(cell, work, anything) for cell, work in ahead)

    def _one(self, cell: object, work: str, anything: float) -> float:
        known = self._by_cell.get(cell) or self._by_work.get(work)
        return fmean(known) if known else anything


def clock_text(seconds: float | None) -> str:
    """`3:07`, or `?` where it is not known."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    return f"{minutes}:{rest:02}"
