from hypothesis import assume, given
from hypothesis import strategies as st

from taskmq.model.jobs.proofs import ReportKeys, new_report_key
from taskmq.model.jobs.reports import Report, ReportKind, after_report
from taskmq.model.jobs.tokens import ends_forgotten_dispatch, is_forgotten, is_invented, next_token
from taskmq.model.states import TERMINAL

_chances = st.integers(0, 2**32 - 1)
_numbers = st.integers(1, 1000)
_kinds = st.sampled_from(("started", "succeeded", "failed", "retry", "interrupted", "expired"))
_KEY = new_report_key(bytes(range(35)))
_KEYS = ReportKeys([_KEY])


def _token(number: int, chance: int) -> int:
    token = 0
    for _ in range(number):
        token = next_token(token, chance)
    return token


@given(_numbers, _chances)
def test_the_token_of_a_dispatch_contains_its_number_and_fits_a_double(number: int, chance: int) -> None:
    token = _token(number, chance)

    assert (token >> 32, token & 0xFFFFFFFF) == (number, chance)
    assert float(token) == token


def test_numbers_wrap_around_after_two_million_dispatches() -> None:
    assert next_token((2**21 - 1) << 32 | 5, 7) == 7


@given(_numbers, _numbers, _chances, _chances)
def test_a_dispatch_with_an_unknown_number_or_chance_is_forgotten(
    reported: int, known: int, chance: int, other: int
) -> None:
    is_later = reported > known
    is_other = reported == known and chance != other

    assert is_forgotten(_token(reported, chance), _token(known, other)) is (is_later or is_other)


@given(_kinds, _numbers, _numbers)
def test_only_an_end_of_the_current_or_a_later_dispatch_counts(kind: ReportKind, reported: int, known: int) -> None:
    token = _token(reported, 1)
    report = Report(id="1", token=token, proof=_KEY.prove("1", token, "reports"), kind=kind)

    ends = ends_forgotten_dispatch(report, _token(known, 2), _KEYS, "reports")

    assert ends is (reported > known and after_report(kind, cancel_requested=False) in TERMINAL)
    assert not is_invented(report, _token(known, 2), _KEYS, "reports")


@given(_kinds, st.integers(0, 2**53 - 1), _numbers, st.sampled_from(("", "AAAA", _KEY.prove("1", 1, "reports"))))
def test_a_proof_of_another_dispatch_is_ignored(kind: ReportKind, token: int, known: int, proof: str) -> None:
    assume(token != 1)
    report = Report(id="1", token=token, proof=proof, kind=kind)

    assert not ends_forgotten_dispatch(report, _token(known, 2), _KEYS, "reports")
    assert is_invented(report, _token(known, 2), _KEYS, "reports") is is_forgotten(token, _token(known, 2))


def test_a_proof_for_another_reports_queue_ends_no_job() -> None:
    token = _token(5, 1)
    report = Report(id="1", token=token, proof=_KEY.prove("1", token, "reports"), kind="succeeded")

    assert ends_forgotten_dispatch(report, 0, _KEYS, "reports")
    assert not ends_forgotten_dispatch(report, 0, _KEYS, "others")
    assert not ends_forgotten_dispatch(report, 0, ReportKeys([]), "reports")
