from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.jobs.reports import Report, ReportKind, after_report
from taskmq.model.jobs.tokens import ends_forgotten_dispatch, is_forgotten, next_token
from taskmq.model.states import TERMINAL

_chances = st.integers(0, 2**32 - 1)
_numbers = st.integers(1, 1000)


def _token(number: int, chance: int) -> int:
    token = 0
    for _ in range(number):
        token = next_token(token, chance)
    return token


@given(_numbers, _chances)
def test_the_token_of_a_dispatch_has_its_number_and_fits_a_double(number: int, chance: int) -> None:
    token = _token(number, chance)

    assert (token >> 32, token & 0xFFFFFFFF) == (number, chance)
    assert float(token) == token


def test_numbers_begin_again_after_two_million_dispatches() -> None:
    assert next_token((2**21 - 1) << 32 | 5, 7) == 7


@given(_numbers, _numbers, _chances, _chances)
def test_a_dispatch_is_forgotten_where_its_number_or_its_chance_was_never_given(
    reported: int, known: int, chance: int, other: int
) -> None:
    is_later = reported > known
    is_other = reported == known and chance != other

    assert is_forgotten(_token(reported, chance), _token(known, other)) is (is_later or is_other)


@given(st.sampled_from(("started", "succeeded", "failed", "retry", "interrupted", "expired")), _numbers, _numbers)
def test_an_end_of_a_later_dispatch_counts_and_nothing_else(kind: ReportKind, reported: int, known: int) -> None:
    report = Report(id="1", token=_token(reported, 1), kind=kind)

    ends = ends_forgotten_dispatch(report, _token(known, 2))

    assert ends is (reported > known and after_report(kind, cancel_requested=False) in TERMINAL)
