"""A cell of the tables: what was measured, of whom, in which rounds; and how figures are written."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["OURS", "Cell", "number_text", "spread_text"]

OURS = "taskmq"


@dataclass(slots=True)
class Cell:
    """One cell and what its runs brought.

    Attributes:
        work: what was done; cells of one work and kind make a table.
        kind: of queue: `quorum`, `classic`, or `redis`.
        setup: what tells two cells of one contender apart, if anything does.
        runs: one for each round, None where it failed or was not run in that round.
        failures: what the failed runs said.
        seconds: how long each run took, everything included.
    """

    work: str
    kind: str
    contender: str
    setup: str
    runs: list[Mapping[str, float] | None] = field(default_factory=list[Mapping[str, float] | None])
    failures: list[str] = field(default_factory=list[str])
    seconds: list[float] = field(default_factory=list[float])

    @property
    def name(self) -> str:
        return f"{self.work}, {self.kind}: {' '.join(filter(None, (self.contender, self.setup)))}"

    def values(self, figure: str) -> list[float]:
        """The figure in each run that had it."""
        return [run[figure] for run in self.runs if run is not None and figure in run]

    def in_round(self, number: int, figure: str) -> float | None:
        """The figure in one round, counted from 0."""
        run = self.runs[number] if number < len(self.runs) else None
        return None if run is None else run.get(figure)


def spread_text(values: Sequence[float]) -> str:
    """Median (minimum-maximum); a single value by itself."""
    if not values:
        return ""
    if len(values) == 1:
        return number_text(values[0])
    return f"{number_text(statistics.median(values))} ({number_text(min(values))}-{number_text(max(values))})"


def number_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
