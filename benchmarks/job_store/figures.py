"""Figures of the rows, their goals, and the file that keeps both."""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

Figures = dict[str, float]
"""By their names, which end with their unit."""
Rows = Mapping[str, Sequence[Figures]]
"""Figures of each round, by row."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal on two processors.

    Attributes:
        at_least: whether the bound is a minimum rather than a maximum.
        why: the known reason for missing the goal; shown if it is missed.
    """

    row: str
    figure: str
    bound: float
    at_least: bool = False
    why: str = ""

    def verdict(self, rows: Rows) -> str:
        """Return `met`, `missed` or `not measured`, by the median of the rounds."""
        values = [figures[self.figure] for figures in rows.get(self.row, ()) if self.figure in figures]
        if not values:
            return "not measured"
        middle = statistics.median(values)
        return "met" if (middle >= self.bound if self.at_least else middle <= self.bound) else "missed"

    @property
    def wanted(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:,g}"


GOALS: Final = (
    Goal("bulk", "jobs/s", 15_000, at_least=True),
    Goal("bulk", "us a job", 90),
    Goal("bulk", "us a job: PostgreSQL", 40),
    Goal("bulk", "us a job: scheduler", 20, why="Python: confirms, reports, arrays of its statements"),
    Goal("submits, 1 caller", "p50 ms", 0.5),
    Goal("submits, 1 caller", "p99 ms", 2, why="a commit waits for this disk, and sometimes for a busy processor"),
    Goal("submits, 64 callers", "jobs/s", 12_000, at_least=True),
    Goal("submits, 64 callers", "p50 ms", 1.5, why="64 callers at 17,700/s: 64 / 17,700 is 3.6 ms for each"),
    Goal("submits, 64 callers", "p99 ms", 5, why="the same"),
    Goal("starts", "p50 ms", 4, why="two commits and a durable message, one after the other"),
    Goal("starts", "p99 ms", 12, why="the same"),
    Goal("starts", "us a job", 2_500, why="three messages and three commits wake up five processes"),
    Goal("lateness", "p50 ms", 12),
    Goal("lateness", "p99 ms", 50),
    Goal("lateness", "scheduler MB", 80),
    Goal("lists", "worst p95 ms", 8),
    Goal("lists", "get p95 ms", 1.5),
    Goal("day dropped", "seconds", 0.3, why="ids of submitters, deleted in parts: see below"),
    Goal("day dropped", "lists beside it, worst ms", 50),
    Goal("scheduler killed", "lost", 0),
    Goal("scheduler killed", "taken over after, s", 0.5),
    Goal("SQLite", "jobs/s", 12_000, at_least=True),
    Goal("tenants", "cost, 10,000 : 10 tenants", 2),
    Goal("peers", "one by one : PgQueuer", 1.1, at_least=True),
    Goal("peers", "bulk : PgQueuer", 1.2, at_least=True),
    Goal("peers", "drain : PgQueuer", 1.0, at_least=True),
    Goal("peers", "latency : PgQueuer", 1.5, why="one more durable message, and a scheduler in between"),
    Goal("peers", "drain : Oban", 4, at_least=True),
    Goal("peers", "drain : Procrastinate", 15, at_least=True),
)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that the given fraction of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def spread(values: Sequence[float]) -> Figures:
    """Return the median and the 99th percentile, in ms, of times in seconds."""
    return {"p50 ms": percentile(values, 0.5) * 1e3, "p99 ms": percentile(values, 0.99) * 1e3}


def text_of(rows: Rows) -> str:
    """Format all figures and goals as text."""
    lines: list[str] = []
    for name, rounds in rows.items():
        lines.append(name)
        for figure in rounds[0]:
            values = [each[figure] for each in rounds if figure in each]
            goal = next((goal for goal in GOALS if (goal.row, goal.figure) == (name, figure)), None)
            wanted = "" if goal is None else f"  goal {goal.wanted}: {goal.verdict(rows)}"
            lines.append(f"    {figure:32} {_number(statistics.median(values)):>10} {_range(values)}{wanted}")
    return "\n".join(lines)


def keep(path: Path, rows: Rows, command: str) -> None:
    """Save the rows next to those measured before, with the verdicts of all goals.

    Args:
        command: the command that measured them, because the figures depend on its sizes.
    """
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found: dict[str, Any] = kept.get("rows", {})
    about = {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "command": command,
    }
    found |= {name: {**about, "rounds": list(rounds)} for name, rounds in rows.items()}
    measured = {name: row["rounds"] for name, row in found.items()}
    goals = [
        {"row": goal.row, "figure": goal.figure, "goal": goal.wanted, "verdict": goal.verdict(measured)}
        for goal in GOALS
    ]
    path.write_text(json.dumps({"rows": found, "goals": goals}, indent=1) + "\n", encoding="utf-8")


def goals_table(path: Path) -> str:
    """Format the goals and the saved figures as a Markdown table."""
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    lines = ["| row: figure | wanted | measured | | on | because |", "|---|---|---|---|---|---|"]
    for goal in GOALS:
        row = rows.get(goal.row, {"rounds": [], "at": "never"})
        values = [figures[goal.figure] for figures in row["rounds"] if goal.figure in figures]
        found = _number(statistics.median(values)) if values else "nothing"
        verdict = goal.verdict({goal.row: row["rounds"]})
        why = goal.why if verdict == "missed" else ""
        day = row["at"].split()[0]
        lines.append(f"| {goal.row}: {goal.figure} | {goal.wanted} | {found} | {verdict} | {day} | {why} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _range(values: Sequence[float]) -> str:
    return "" if len(values) == 1 else f"({_number(min(values))}-{_number(max(values))})"
