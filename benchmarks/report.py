"""Results as JSON, tables and plots.

Figures are shown as median (minimum-maximum) of the runs. Ratios compare two runs of the same round and are shown the
same way: the machine's speed drifts, and a ratio within a round drifts less.
"""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.cell import OURS, Cell, number_text, spread_text
from benchmarks.goals import Verdict, judge

# Figures with a plot; the tables show the rest.
_PLOTTED = (
    *("tasks_per_second", "worker_us", "producer_us", "p50_ms", "p99_ms", "until_gathered_s"),
    *("import_ms", "first_task_s", "resident_mb", "peak_mb"),
)
_LOWER_IS_BETTER = ("_us", "_ms", "_s", "_mb")


def write(cells: Sequence[Cell], folder: Path, *, about: Mapping[str, Any]) -> None:
    """Write results.json and results.md into `folder`.

    Args:
        about: how the session ran; details of the machine are added.
    """
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        **about,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "machine": platform.platform(),
    }
    verdicts = judge(cells)
    goals = [
        {
            "work": verdict.goal.work,
            "goal": verdict.goal.wanted,
            "rounds": list(verdict.values),
            "measured": verdict.measured,
            "verdict": verdict.met,
        }
        for verdict in verdicts
    ]
    results = {"about": about, "goals": goals, "cells": [asdict(cell) for cell in cells]}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(_page(cells, verdicts, about), encoding="utf-8")


def plot(cells: Sequence[Cell], folder: Path) -> None:
    """Write an SVG plot per table and figure into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for work, kind in _tables_of(cells):
        rows = [cell for cell in cells if (cell.work, cell.kind) == (work, kind)]
        for figure in _figures(rows):
            if figure in _PLOTTED:
                name = f"{work} {kind} {figure}".replace(" ", "-").replace(",", "")
                (folder / f"{name}.svg").write_text(_bars(rows, figure, f"{work}, {kind}"), encoding="utf-8")


def goals_table(verdicts: Sequence[Verdict]) -> list[str]:
    """Format the goals and their verdicts as a Markdown table."""
    counts = {word: sum(verdict.met == word for verdict in verdicts) for word in ("met", "missed", "not measured")}
    return [
        "## Goals",
        "",
        ", ".join(f"{count} {word}" for word, count in counts.items()) + ". Ratios compare runs of the same round.",
        "",
        "| work | goal | measured | verdict |",
        "|---|---|---|---|",
        *(f"| {each.goal.work} | {each.goal.wanted} | {each.measured} | {each.met} |" for each in verdicts),
        "",
    ]


def _page(cells: Sequence[Cell], verdicts: Sequence[Verdict], about: Mapping[str, Any]) -> str:
    lines = ["# Benchmark results", "", ", ".join(f"{name} {value}" for name, value in about.items()), ""]
    if about.get("scale", 1.0) != 1.0:
        lines += [f"**At scale {about['scale']} the figures only show that the benchmark runs.**", ""]
    lines += goals_table(verdicts)
    for work, kind in _tables_of(cells):
        rows = [cell for cell in cells if (cell.work, cell.kind) == (work, kind)]
        figures = _figures(rows)
        if not figures and not any(row.failures for row in rows):
            continue
        lines += [
            f"## {work}, {kind}",
            "",
            f"| contender | {' | '.join([*figures, 'taskmq : it'])} |",
            "|---" * (len(figures) + 2) + "|",
        ]
        for row in rows:
            shown = [spread_text(row.values(figure)) for figure in figures]
            if row.failures and not any(shown):
                shown = ["failed", *shown[1:]] if shown else []
            last = _ratio(_ours(cells, rows, row), row, figures[0]) if figures else "failed"
            lines.append(f"| {_who(row)} | {' | '.join([*shown, last])} |")
        lines += ["", *(f"- {_who(row)} failed: {_one_line(text)}" for row in rows for text in row.failures), ""]
    return "\n".join(lines)


def _who(row: Cell) -> str:
    return f"{row.contender} {row.setup}".strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())[-600:]


def _ours(cells: Sequence[Cell], rows: Sequence[Cell], row: Cell) -> Cell | None:
    """Return taskmq's cell to compare the row with; Redis rows are compared with taskmq on quorum queues."""
    if row.kind == "redis":
        rows = [cell for cell in cells if (cell.work, cell.kind) == (row.work, "quorum")]
    ours = [cell for cell in rows if cell.contender == OURS]
    return next((cell for cell in ours if cell.setup == row.setup), ours[0] if ours else None)


def _ratio(ours: Cell | None, row: Cell, figure: str) -> str:
    if ours is None or ours is row:
        return ""
    pairs = [
        (mine[figure], theirs[figure])
        for mine, theirs in zip(ours.runs, row.runs, strict=False)
        if mine is not None and theirs is not None and theirs.get(figure) and mine.get(figure)
    ]
    return spread_text([mine / theirs for mine, theirs in pairs])


def _tables_of(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((cell.work, cell.kind) for cell in cells))


def _figures(rows: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for run in row.runs if run is not None for name in run))


def _bars(rows: Sequence[Cell], figure: str, title: str) -> str:
    """Draw horizontal bars of the medians, with a line from minimum to maximum."""
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
        colour = "#d9480f" if name.startswith(OURS) else "#868e96"
        low, high = (left + width * value / most for value in (min(values), max(values)))
        parts += [
            f'<text x="8" y="{y + 13}">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{width * median / most:.1f}" height="{height - 8}" fill="{colour}"/>',
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + 8}" y2="{y + 8}" stroke="black"/>',
            f'<text x="{high + 6:.1f}" y="{y + 13}">{number_text(median)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
