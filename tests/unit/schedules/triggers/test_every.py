from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.units import LAST_INSTANT
from taskmq.schedules.triggers import Every, every

_periods = st.integers(100, 10**10)
_instants = st.integers(0, 2**45)


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("30s", 30_000), (0.1, 100), (5, 5000), ("1h30m", 5_400_000), (timedelta(days=1), 86_400_000)],
)
def test_a_period_is_written_as_any_duration(written: Any, milliseconds: int) -> None:
    assert Every.parse(written) == Every(milliseconds)


@pytest.mark.parametrize("written", [0, 0.099, "99ms", timedelta(0)])
def test_a_period_below_a_tenth_of_a_second_is_refused(written: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^every=.*: must be at least 100 ms$"):
        Every.parse(written)


@pytest.mark.parametrize("written", [-1, "soon", None, True])
def test_an_invalid_duration_is_refused_by_its_name(written: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^every=.* is not a duration"):
        Every.parse(written)


def test_the_instants_are_the_multiples_since_the_epoch() -> None:
    every = Every.parse("1h")

    assert [every.next_after(instant) for instant in (0, 1, 3_599_999, 3_600_000)] == [
        3_600_000,
        3_600_000,
        3_600_000,
        7_200_000,
    ]


@given(_periods, _instants)
def test_the_next_instant_is_the_first_one_strictly_later(period: int, instant: int) -> None:
    later = Every(period).next_after(instant)

    assert later is not None
    assert instant < later <= instant + period
    assert later % period == 0


@given(_periods, _instants, st.integers(0, 10**9))
def test_every_moment_between_two_instants_has_the_same_next_one(period: int, instant: int, wait: int) -> None:
    later = Every(period).next_after(instant)

    assert later is not None
    assert Every(period).next_after(min(instant + wait, later - 1)) == later


@given(_periods, _instants)
def test_no_instant_is_skipped(period: int, instant: int) -> None:
    every = Every(period)
    first = every.next_after(instant)

    assert first is not None
    assert every.next_after(first) == first + period


@pytest.mark.parametrize("written", ["3000000d", "9999999d", 3.2e11])
def test_a_period_that_ends_after_the_year_9999_is_refused(written: Any) -> None:
    with pytest.raises(InvalidOption, match="would be due only after the year 9999"):
        Every.parse(written)
    with pytest.raises(InvalidOption, match="would be due only after the year 9999"):
        every("2000000d", anchor=datetime(7000, 1, 1, tzinfo=UTC))


@given(st.integers(100, 2**53), st.integers(0, 2**53), st.integers(-(2**45), 2**53))
def test_no_instant_is_due_after_the_year_9999(period: int, phase: int, instant: int) -> None:
    following = Every(period, phase % period).next_after(instant)

    assert following is None or instant < following <= LAST_INSTANT


def test_a_period_stored_by_an_older_version_is_never_due() -> None:
    assert Every(3_000_000 * 86_400_000).next_after(1_900_000_000_000) is None
