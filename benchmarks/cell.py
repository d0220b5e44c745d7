"""Cells of the tables: the figures of one contender's runs, and their number format."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

OURS = "taskmq"


@dataclass(slots=True)
class Cell:
    """One cell and the figures of its runs.

    Attributes:
        work: the piece of work; cells with the same work and kind form a table.
        kind: the kind of queue: `quorum`, `classic`, or `redis`.
        setup: distinguishes several cells of one contender; may be empty.
        runs: the figures of each round; None if the run failed or was skipped.
        failures: the error messages of failed runs.
        seconds: the duration of each run, including setup.
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
        """Return the figure of each run that has it."""
        return [run[figure] for run in self.runs if run is not None and figure in run]

    def in_round(self, number: int, figure: str) -> float | None:
        """Return the figure of one round, counted from 0."""
        run = self.runs[number] if number < len(self.runs) else None
        return None if run is None else run.get(figure)


def spread_text(values: Sequence[float]) -> str:
    """Format values as `median (minimum-maximum)`, or a single value alone."""
    if not values:
        return ""
    if len(values) == 1:
        return number_text(values[0])
    return f"{number_text(statistics.median(values))} ({number_text(min(values))}-{number_text(max(values))})"


def number_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
