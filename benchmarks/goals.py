"""Performance goals of the project, labelled as in the tables.

A ratio compares two runs of the same round, which are close in time; the median ratio decides. If a peer did not run,
its goal is `not measured`: no other peer's figure replaces it.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.cell import OURS, Cell, number_text, spread_text

# Task queues and frameworks on RabbitMQ; neither the floors nor libraries on Redis.
PEERS: Final = ("celery", "dramatiq", "taskiq", "faststream")
_KINDS: Final = ("quorum", "classic")

# The values of one goal, round by round; empty if it was not measured.
Measure = Callable[[Sequence[Cell]], list[float]]


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal.

    Attributes:
        work: the work and figure it applies to.
        wanted: the goal in words.
        bound: the number to compare the median with.
        at_least: whether the bound is a minimum rather than a maximum.
        measure: returns the values.
    """

    work: str
    wanted: str
    bound: float
    at_least: bool
    measure: Measure


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a goal."""

    goal: Goal
    values: tuple[float, ...]

    @property
    def met(self) -> Literal["met", "missed", "not measured"]:
        if not self.values:
            return "not measured"
        median = statistics.median(self.values)
        is_met = median >= self.goal.bound if self.goal.at_least else median <= self.goal.bound
        return "met" if is_met else "missed"

    @property
    def measured(self) -> str:
        return spread_text(self.values)


def judge(cells: Sequence[Cell], goals: "Sequence[Goal] | None" = None) -> list[Verdict]:
    """Judge each goal by the cells."""
    return [Verdict(goal, tuple(goal.measure(cells))) for goal in (GOALS if goals is None else goals)]


def _find(cells: Sequence[Cell], work: str, kind: str, contender: str) -> Cell | None:
    return next((cell for cell in cells if (cell.work, cell.kind, cell.contender) == (work, kind, contender)), None)


def _rounds(*cells: Cell | None) -> range:
    return range(max((len(cell.runs) for cell in cells if cell is not None), default=0))


def _quotients(pairs: Sequence[tuple[float | None, float | None]]) -> list[float]:
    return [ours / theirs for ours, theirs in pairs if ours is not None and theirs]


def ratio(work: str, kind: str, other: str, *, figure: str = "tasks_per_second") -> Measure:
    """Build a measure: taskmq's figure divided by the other contender's."""

    def measure(cells: Sequence[Cell]) -> list[float]:
        ours, theirs = _find(cells, work, kind, OURS), _find(cells, work, kind, other)
        if ours is None or theirs is None:
            return []
        rounds = _rounds(ours, theirs)
        return _quotients([(ours.in_round(each, figure), theirs.in_round(each, figure)) for each in rounds])

    return measure


def best_ratio(work: str, kind: str, *, figure: str, less_is_better: bool) -> Measure:
    """Build a measure: taskmq's figure divided by the best peer's in each round."""

    def measure(cells: Sequence[Cell]) -> list[float]:
        ours = _find(cells, work, kind, OURS)
        peers = [peer for name in PEERS if (peer := _find(cells, work, kind, name)) is not None]
        if ours is None:
            return []
        pairs: list[tuple[float | None, float | None]] = []
        for number in _rounds(ours):
            theirs = [value for peer in peers if (value := peer.in_round(number, figure)) is not None]
            best = (min if less_is_better else max)(theirs, default=None)
            pairs.append((ours.in_round(number, figure), best))
        return _quotients(pairs)

    return measure


def value(work: str, kind: str, figure: str) -> Measure:
    """Build a measure: taskmq's own figure."""

    def measure(cells: Sequence[Cell]) -> list[float]:
        ours = _find(cells, work, kind, OURS)
        return [] if ours is None else ours.values(figure)

    return measure


def late_beyond_drain(kind: str) -> Measure:
    """Build a measure: p99 lateness of delayed tasks minus the time to drain as many, in ms."""

    def measure(cells: Sequence[Cell]) -> list[float]:
        late, drain = _find(cells, "delayed 5 s", kind, OURS), _find(cells, "drain, 1", kind, OURS)
        if late is None or drain is None:
            return []
        beyond: list[float] = []
        for number in _rounds(late):
            p99, tasks = late.in_round(number, "p99_ms"), late.in_round(number, "delayed_tasks")
            rate = drain.in_round(number, "tasks_per_second")
            if p99 is not None and tasks is not None and rate:
                beyond.append(p99 - tasks / rate * 1e3)
        return beyond

    return measure


def _times(work: str, kind: str, at_least: float, other: str, *, named: str = "") -> Goal:
    return Goal(f"{work}, {kind}", f">= {at_least:g} x {named or other}", at_least, True, ratio(work, kind, other))


def _at_most(work: str, kind: str, figure: str, bound: float, unit: str) -> Goal:
    return Goal(
        f"{work}, {kind}: {figure}", f"<= {number_text(bound)} {unit}", bound, False, value(work, kind, figure)
    )


def _best(work: str, kind: str, figure: str) -> Goal:
    measure = best_ratio(work, kind, figure=figure, less_is_better=True)
    return Goal(f"{work}, {kind}: {figure}", "<= 1 x the best peer", 1.0, False, measure)


def _one_by_one(kind: str) -> Goal:
    measure = best_ratio("enqueue one by one", kind, figure="tasks_per_second", less_is_better=False)
    return Goal(f"enqueue one by one, {kind}", ">= 1.2 x the best peer", 1.2, True, measure)


def _latency(work: str) -> list[Goal]:
    return [_best(work, kind, figure) for kind in _KINDS for figure in ("p50_ms", "p99_ms")]


def _delayed(kind: str) -> list[Goal]:
    wanted = "p99 <= 50 ms beyond the drain of as many"
    return [
        Goal(f"delayed 5 s, {kind}: p99_ms", wanted, 50.0, False, late_beyond_drain(kind)),
        _at_most("delayed 5 s", kind, "resident_growth_mb", 10.0, "MB"),
    ]


GOALS: Final[tuple[Goal, ...]] = (
    _times("drain, 1", "quorum", 12, "celery"),
    _times("drain, 1", "quorum", 12, "taskiq"),
    _times("drain, 1", "quorum", 0.6, "C", named="C, ack each"),
    _times("drain, 1", "classic", 4.5, "celery"),
    _times("drain, 1", "classic", 3, "dramatiq"),
    _times("drain, 1", "classic", 5, "taskiq"),
    _times("drain, 1", "classic", 0.75, "C", named="C, ack each"),
    *(_times("drain, 1 threads", kind, 4, "celery", named="celery threads") for kind in _KINDS),
    _times("drain, 1 threads", "classic", 4, "dramatiq", named="dramatiq, 8 threads"),
    *(_at_most("drain, 1", kind, "worker_us", 10.0, "us") for kind in _KINDS),
    _times("drain, 2", "quorum", 10, "celery"),
    _times("drain, 2", "quorum", 10, "taskiq"),
    *(_times("enqueue bulk", kind, 0.8, "C", named="C, 1,000 unconfirmed") for kind in _KINDS),
    *(_times("enqueue bulk", kind, 5, "celery", named="celery, unconfirmed") for kind in _KINDS),
    _times("enqueue 100 concurrent", "classic", 3, "taskiq"),
    _times("enqueue 100 concurrent", "quorum", 5, "taskiq"),
    *(_one_by_one(kind) for kind in _KINDS),
    *(goal for rate in (100, 500, 1000) for goal in _latency(f"latency at {rate} per second")),
    *(goal for kind in _KINDS for goal in _delayed(kind)),
    _at_most("start", "quorum", "import_ms", 60.0, "ms"),
    *(_best("start", kind, "first_task_s") for kind in _KINDS),
    _at_most("start", "quorum", "resident_mb", 45.0, "MB"),
)
