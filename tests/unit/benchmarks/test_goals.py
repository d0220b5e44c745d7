"""The verdict of a benchmark session on its goals."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cell import Cell
from benchmarks.goals import GOALS, Goal, best_ratio, judge, late_beyond_drain, ratio, value

_rates = st.floats(min_value=1.0, max_value=1e6)


def _cell(contender: str, *runs: Mapping[str, float] | None, work: str = "drain, 1") -> Cell:
    return Cell(work, "quorum", contender, "", runs=list(runs))


def _rates_of(contender: str, *rates: float | None, work: str = "drain, 1") -> Cell:
    runs = [None if rate is None else {"tasks_per_second": rate} for rate in rates]
    return _cell(contender, *runs, work=work)


def _goal(bound: float, *, at_least: bool = True) -> Goal:
    return Goal("drain, 1, quorum", "a goal", bound, at_least, ratio("drain, 1", "quorum", "celery"))


def _says(goal: Goal, *cells: Cell) -> str:
    (verdict,) = judge(cells, [goal])
    return verdict.met


def test_a_ratio_compares_two_runs_of_the_same_round() -> None:
    cells = [_rates_of("taskmq", 100.0, 30.0), _rates_of("celery", 10.0, 1.0)]

    assert ratio("drain, 1", "quorum", "celery")(cells) == [10.0, 30.0]


def test_a_round_with_a_failed_run_has_no_ratio() -> None:
    cells = [_rates_of("taskmq", 100.0, None, 60.0), _rates_of("celery", 10.0, 1.0)]

    assert ratio("drain, 1", "quorum", "celery")(cells) == [10.0]


def test_the_median_decides() -> None:
    ours, theirs = _rates_of("taskmq", 90.0, 130.0, 140.0), _rates_of("celery", 10.0, 10.0, 10.0)

    assert _says(_goal(13.0), ours, theirs) == "met"
    assert _says(_goal(13.1), ours, theirs) == "missed"
    assert _says(_goal(13.0, at_least=False), ours, theirs) == "met"
    assert _says(_goal(12.9, at_least=False), ours, theirs) == "missed"


def test_a_goal_without_a_peer_run_is_neither_met_nor_missed() -> None:
    assert _says(_goal(1.0), _rates_of("taskmq", 100.0)) == "not measured"
    assert _says(_goal(1.0), _rates_of("taskmq", 100.0), _rates_of("celery", None)) == "not measured"
    assert _says(_goal(1.0), _rates_of("celery", 100.0)) == "not measured"


def test_the_best_peer_is_chosen_in_each_round() -> None:
    cells = [_rates_of("taskmq", 8.0, 8.0), _rates_of("celery", 4.0, 1.0), _rates_of("taskiq", 1.0, 2.0)]

    most = best_ratio("drain, 1", "quorum", figure="tasks_per_second", less_is_better=False)
    least = best_ratio("drain, 1", "quorum", figure="tasks_per_second", less_is_better=True)
    assert most(cells) == [2.0, 4.0]
    assert least(cells) == [8.0, 8.0]


def test_a_floor_is_not_a_peer() -> None:
    cells = [_rates_of("taskmq", 8.0), _rates_of("C", 100.0), _rates_of("aio-pika", 100.0), _rates_of("celery", 4.0)]

    assert best_ratio("drain, 1", "quorum", figure="tasks_per_second", less_is_better=False)(cells) == [2.0]


def test_peers_with_another_kind_of_queue_are_not_compared() -> None:
    cells = [_rates_of("taskmq", 8.0), Cell("drain, 1", "classic", "celery", "", runs=[{"tasks_per_second": 4.0}])]

    assert ratio("drain, 1", "quorum", "celery")(cells) == []


def test_a_goal_with_an_absolute_bound_needs_no_peer() -> None:
    cells = [_cell("taskmq", {"import_ms": 41.0}, {"import_ms": 43.0})]

    assert value("drain, 1", "quorum", "import_ms")(cells) == [41.0, 43.0]
    assert value("drain, 1", "quorum", "resident_mb")(cells) == []


def test_delayed_tasks_may_be_as_late_as_draining_them_takes() -> None:
    late = _cell("taskmq", {"p99_ms": 540.0, "delayed_tasks": 10_000.0}, work="delayed 5 s")
    drain = _rates_of("taskmq", 20_000.0)

    assert late_beyond_drain("quorum")([late, drain]) == [40.0]
    assert late_beyond_drain("quorum")([late]) == []


@given(st.lists(st.tuples(_rates, _rates), min_size=1, max_size=5))
def test_a_contender_that_is_faster_in_each_round_is_not_behind(rounds: list[tuple[float, float]]) -> None:
    ours = _rates_of("taskmq", *(max(pair) for pair in rounds))
    theirs = _rates_of("celery", *(min(pair) for pair in rounds))

    assert _says(_goal(1.0), ours, theirs) == "met"


def test_every_goal_has_a_distinct_name() -> None:
    names = [(goal.work, goal.wanted) for goal in GOALS]

    assert len(set(names)) == len(names)


def test_no_measurements_meet_no_goal() -> None:
    assert {verdict.met for verdict in judge([])} == {"not measured"}
