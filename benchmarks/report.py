"""What was measured, as JSON, as a table and as plots.

Every figure is given as median (minimum-maximum) of its runs. A ratio is taken run by run, of the two runs of one
round, and then given in the same way: the machine's speed drifts, and a ratio within a round drifts less.
"""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["Cell", "write"]

_OURS = "taskmq"
_LOWER_IS_BETTER = ("_us", "_ms", "_s", "_mb")


@dataclass(slots=True)
class Cell:
    """One cell of the table and what its runs brought; a run that failed is None."""

    work: str
    kind: str
    contender: str
    setup: str
    runs: list[Mapping[str, float] | None] = field(default_factory=list[Mapping[str, float] | None])
    failures: list[str] = field(default_factory=list[str])

    def values(self, figure: str) -> list[float]:
        """The figure in each run that had it."""
        return [run[figure] for run in self.runs if run is not None and figure in run]


def write(cells: Sequence[Cell], folder: Path, *, broker: str) -> None:
    """Write results.json, results.md and one SVG per piece of work into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "broker": f"RabbitMQ {broker}",
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "machine": platform.platform(),
    }
    results = {"about": about, "cells": [asdict(cell) for cell in cells]}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(_tables(cells, about), encoding="utf-8")
    for work, kind in _kinds(cells):
        rows = [cell for cell in cells if (cell.work, cell.kind) == (work, kind)]
        figure = next(iter(_figures(rows)), None)
        if figure is not None:
            name = f"{work} {kind} {figure}".replace(" ", "-").replace(",", "")
            (folder / f"{name}.svg").write_text(_bars(rows, figure, f"{work}, {kind}"), encoding="utf-8")


def _tables(cells: Sequence[Cell], about: Mapping[str, Any]) -> str:
    lines = ["# Benchmark results", "", ", ".join(f"{name} {value}" for name, value in about.items()), ""]
    for work, kind in _kinds(cells):
        rows = [cell for cell in cells if (cell.work, cell.kind) == (work, kind)]
        figures = _figures(rows)
        if not figures:
            continue
        lines += [
            f"## {work}, {kind}",
            "",
            f"| who | {' | '.join(figures)} | taskmq : it |",
            "|---" * (len(figures) + 2) + "|",
        ]
        for row in rows:
            ours = next((cell for cell in rows if cell.contender == _OURS and cell.setup == row.setup), None)
            ours = ours or next((cell for cell in rows if cell.contender == _OURS), None)
            cells_ = " | ".join(_spread(row.values(figure)) for figure in figures)
            lines.append(f"| {row.contender} {row.setup} | {cells_} | {_ratio(ours, row, figures[0])} |")
        lines += ["", *(f"- {row.contender} {row.setup}: {text}" for row in rows for text in row.failures), ""]
    return "\n".join(lines)


def _ratio(ours: Cell | None, row: Cell, figure: str) -> str:
    if ours is None or ours is row:
        return ""
    pairs = [
        (mine[figure], theirs[figure])
        for mine, theirs in zip(ours.runs, row.runs, strict=False)
        if mine is not None and theirs is not None and theirs.get(figure) and mine.get(figure)
    ]
    return _spread([mine / theirs for mine, theirs in pairs])


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(statistics.median(values))} ({_number(min(values))}-{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _kinds(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((cell.work, cell.kind) for cell in cells))


def _figures(rows: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for run in row.runs if run is not None for name in run))


def _bars(rows: Sequence[Cell], figure: str, title: str) -> str:
    """Horizontal bars with the median, a line from minimum to maximum."""
    shown = [(f"{row.contender} {row.setup}", row.values(figure)) for row in rows if row.values(figure)]
    most = max((max(values) for _, values in shown), default=1.0) or 1.0
    height, left, width = 24, 190, 460
    better = "less is better" if figure.endswith(_LOWER_IS_BETTER) else "more is better"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 110}" height="{height * len(shown) + 50}">',
        "<style>text { font: 12px sans-serif }</style>",
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(title)}: {escape(figure)} ({better})</text>',
    ]
    for index, (name, values) in enumerate(shown):
        y = 36 + index * height
        median = statistics.median(values)
        colour = "#d9480f" if name.startswith(_OURS) else "#868e96"
        low, high = (left + width * value / most for value in (min(values), max(values)))
        parts += [
            f'<text x="8" y="{y + 13}">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{width * median / most:.1f}" height="{height - 8}" fill="{colour}"/>',
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + 8}" y2="{y + 8}" stroke="black"/>',
            f'<text x="{high + 6:.1f}" y="{y + 13}">{_number(median)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
