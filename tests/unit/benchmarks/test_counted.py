"""Counting of executed tasks in the benchmarks."""

from benchmarks.counted import Counted


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_existing_cells_are_counted_at_once() -> None:
    assert Counted([0, 3, 0, 4], _Clock()).total() == 7


def test_a_used_cell_is_seen_by_every_poll() -> None:
    cells = [0, 3]
    counted = Counted(cells, _Clock())
    counted.total()

    cells[1] = 5

    assert counted.total() == 5


def test_a_new_cell_is_found_within_fifty_milliseconds() -> None:
    cells = [0, 3]
    clock = _Clock()
    counted = Counted(cells, clock)
    counted.total()

    cells[0] = 2
    assert counted.total() == 3
    clock.now = 0.05
    assert counted.total() == 5
