"""The table of the cost of a log line."""

from benchmarks.log_lines import PLAIN, WAYS, Way, table


def test_each_method_is_compared_with_plain_logging_of_the_same_round() -> None:
    plain, kept = Way(PLAIN, level=None), Way("kept")

    rows = table({plain: [10.0, 20.0, 12.0], kept: [15.0, 40.0, 24.0]})

    assert rows[2:] == [f"| {PLAIN} | 12 (10-20) | 1 (1-1) |", "| kept | 24 (15-40) | 2 (1.5-2) |"]


def test_no_logging_method_appears_twice_and_one_is_plain() -> None:
    names = [way.what for way in WAYS]

    assert len(set(names)) == len(names)
    assert names.count(PLAIN) == 1
