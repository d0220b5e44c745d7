"""The remaining time that a benchmark session estimates."""

import pytest

from benchmarks.pace import Pace, clock_text


def test_nothing_is_estimated_before_the_first_run() -> None:
    assert Pace().left([("a", "drain")]) is None


def test_a_repeated_cell_is_estimated_from_its_last_run() -> None:
    pace = Pace()
    pace.record("a", "drain", 10.0)
    pace.record("b", "drain", 2.0)

    assert pace.left([("a", "drain"), ("b", "drain")]) == 12.0


def test_a_new_cell_is_estimated_from_cells_of_the_same_workload() -> None:
    pace = Pace()
    pace.record("a", "drain", 10.0)
    pace.record("b", "drain", 20.0)
    pace.record("c", "start", 3.0)

    assert pace.left([("d", "drain")]) == 15.0


def test_a_new_workload_is_estimated_from_all_cells() -> None:
    pace = Pace()
    pace.record("a", "drain", 10.0)
    pace.record("c", "start", 2.0)

    assert pace.left([("e", "memory")]) == 6.0


def test_no_remaining_cells_take_no_time() -> None:
    pace = Pace()
    pace.record("a", "drain", 10.0)

    assert pace.left([]) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3607.0, "60:07"), (-3.0, "0:00")],
)
def test_a_duration_is_formatted_as_minutes_and_seconds(seconds: float | None, text: str) -> None:
    assert clock_text(seconds) == text
