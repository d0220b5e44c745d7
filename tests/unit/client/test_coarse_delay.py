"""Delays as the ladder of a broker uses them: three significant bits of 125 ms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.retry import coarse_delay


@pytest.mark.parametrize(
    ("asked", "coarse"),
    [
        (0, 0),
        (1, 125),
        (125, 125),
        (126, 250),
        (875, 875),
        (876, 1000),
        (1000, 1000),
        (1001, 1250),
        (2000, 2000),
        (2001, 2500),
        (60_000, 64_000),
        (300_000, 320_000),
        (86_400_000, 98_304_000),
    ],
)
def test_a_delay_is_rounded_up_to_three_significant_bits(asked: int, coarse: int) -> None:
    assert coarse_delay(asked) == coarse


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_longer_delay_never_ends_before_a_shorter_one(one: int, other: int) -> None:
    shorter, longer = sorted((one, other))

    assert coarse_delay(shorter) <= coarse_delay(longer)


@given(st.integers(0, 7), st.integers(0, 30))
def test_a_delay_with_three_significant_bits_is_unchanged(bits: int, shift: int) -> None:
    exact = (bits << shift) * 125

    assert coarse_delay(exact) == exact


@given(st.integers(1, 10_000), st.integers(0, 2**30))
def test_another_unit_scales_the_rounding(unit: int, units: int) -> None:
    assert coarse_delay(units * unit, unit=unit) == coarse_delay(units * 125) // 125 * unit
