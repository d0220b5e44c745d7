"""The age of a standby, from positions of the primary's log."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq_sql.postgres.replica import Positions


def _positions(*seen: tuple[float, int], reach: float = 100) -> Positions:
    positions = Positions(reach=reach)
    for at, position in seen:
        positions.add(at, position)
    return positions


@pytest.mark.parametrize(
    ("position", "least", "most"),
    [(5, 10, math.inf), (10, 9, 10), (15, 9, 10), (20, 8, 9), (29, 8, 9), (30, 0, 8), (99, 0, 8)],
)
def test_a_standby_is_as_old_as_the_last_position_that_it_has_reached(
    position: int, least: float, most: float
) -> None:
    positions = _positions((1, 10), (2, 20), (3, 30))

    assert (positions.least_age(position, now=11), positions.age(position, now=11)) == (least, most)


def test_a_standby_of_an_idle_primary_has_the_age_of_the_last_look() -> None:
    positions = _positions((1, 10), (2, 20), (500, 20))

    assert positions.age(20, now=501) == 1
    # It has lacked a change since the second look.
    assert positions.least_age(10, now=501) == 499


def test_an_old_position_is_forgotten() -> None:
    positions = _positions((1, 10), (2, 20), (150, 30))

    assert positions.age(20, now=150) == math.inf


def test_positions_of_a_former_primary_are_forgotten() -> None:
    positions = _positions((1, 1_000), (2, 10))

    assert positions.age(900, now=3) == 1
    assert positions.age(5, now=3) == math.inf


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.integers(0, 60),
)
def test_the_true_age_is_between_the_bounds(written: list[int], looks: list[bool], position: int) -> None:
    """The primary writes so many bytes each second; the standby has replayed up to `position`."""
    positions = Positions(reach=100)
    ends: list[int] = []
    for second, count in enumerate(written):
        ends.append((ends[-1] if ends else 0) + count)
        if looks[second]:
            positions.add(second, ends[-1])
    now = len(written)
    # The standby lacks what was written in the first second whose end it has not reached.
    behind = next((now - second for second, end in enumerate(ends) if end > position), 0)

    assert positions.least_age(position, now=now) <= behind
    assert positions.age(position, now=now) >= behind
