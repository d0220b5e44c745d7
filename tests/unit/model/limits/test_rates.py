"""Starts under rates: even, early by a little, and exact if they are strict."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.limits import LEAD, RateBook, RateDemand, count_starts, first_start, used_until, wait_for_start
from taskmq.model.limits.rates import MADE_UP

PLAIN = RateDemand(key="plain", interval=0.05)
STRICT = RateDemand(key="strict", interval=0.05, strict=True)


def test_a_plain_start_makes_up_for_a_short_pause_and_a_strict_one_is_ahead() -> None:
    assert first_start(PLAIN, -math.inf, now=10) == 10 - MADE_UP
    assert first_start(PLAIN, 12, now=10) == 12
    assert first_start(STRICT, -math.inf, now=10, lead=0.3) == 10.3
    assert first_start(STRICT, 12, now=10) == 12


def test_an_unused_rate_grants_what_its_lead_allows() -> None:
    burst = RateDemand(key="burst", interval=60, burst=4)

    assert count_starts(PLAIN, -math.inf, now=10) == math.floor((LEAD + MADE_UP) / 0.05) + 1
    assert count_starts(burst, -math.inf, now=10) == 4
    assert count_starts(STRICT, -math.inf, now=10, lead=0.2) in {4, 5}
    assert count_starts(STRICT, -math.inf, now=10, lead=0) == 1


def test_a_used_rate_has_to_be_waited_for() -> None:
    assert count_starts(PLAIN, 20, now=10) == count_starts(STRICT, 20, now=10) == 0
    assert wait_for_start(PLAIN, 20, now=10) == pytest.approx(10 - LEAD)
    assert wait_for_start(STRICT, 20, now=10, lead=0.5) == pytest.approx(9.3)
    for demand in (PLAIN, STRICT):
        assert used_until(demand, wait_for_start(demand, 20, now=10), now=10) == pytest.approx(20)


def test_a_book_grants_nothing_if_one_of_the_rates_is_closed() -> None:
    book = RateBook({"plain": 20}, now=10)

    assert book.find_closed([STRICT, PLAIN]) == "plain"
    assert book.find_closed([STRICT]) == ""
    assert book.used == {"plain": 20}
    assert book.wait(PLAIN) == pytest.approx(10 - LEAD)


def test_a_start_under_two_strict_rates_has_the_later_instant() -> None:
    slow = RateDemand(key="slow", interval=2, strict=True)
    book = RateBook({"slow": 11}, now=10)

    assert book.take([STRICT, slow, PLAIN]) == 11

    assert book.used == {"slow": 13, "strict": 11.05, "plain": pytest.approx(10 - MADE_UP + 0.05)}
    assert book.take([PLAIN]) is None


@given(st.lists(st.floats(0, 0.4), max_size=60), st.booleans(), st.integers(1, 3))
def test_no_period_has_more_starts_than_the_rate_allows(pauses: list[float], strict: bool, burst: int) -> None:
    demand = RateDemand(key="rate", interval=0.05, burst=1 if strict else burst, strict=strict)
    used: dict[str, float] = {}
    starts: list[float] = []
    now = 1_700_000_000.0
    for pause in pauses:
        now += pause
        book = RateBook(used, now=now)
        for _ in range(20):
            if book.find_closed([demand]):
                break
            instant = book.take([demand])
            starts.append(now if instant is None else instant)
        used = book.used

    for first, start in enumerate(starts):
        for last in range(first, len(starts)):
            span = starts[last] - start
            most = span / 0.05 + 1 if strict else (span + LEAD + MADE_UP) / 0.05 + burst
            assert last - first + 1 <= most + 1e-3
