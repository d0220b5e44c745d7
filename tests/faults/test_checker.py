"""The judge itself: every kind of violation is found, and a correct campaign is not accused."""

import dataclasses

import pytest

from tests.faults.checker import OK, UNKNOWN, Fault, Run, Send, judge

SENT = Send("a", OK, began=1000, took=20)


def test_a_job_sent_and_run_once_is_correct() -> None:
    verdict = judge([SENT], [Run("a", 1050)])

    assert verdict.wrong == {}
    assert (verdict.sends, verdict.runs, verdict.outcomes[OK]) == (1, 1, 1)
    assert "1 confirmed" in str(verdict)
    assert "0 lost" in str(verdict)


def test_a_confirmed_job_that_never_ran_is_lost() -> None:
    verdict = judge([SENT, Send("b", OK, 1000, 20)], [Run("a", 1050)])

    assert verdict.wrong == {"lost": ("b",)}
    assert "1 lost: ('b',)" in str(verdict)


def test_a_dead_letter_is_not_lost_but_counted() -> None:
    verdict = judge([SENT], [], dead=["a"])

    assert verdict.wrong == {}
    assert verdict.dead == 1


def test_a_job_without_a_send_is_a_phantom() -> None:
    assert judge([SENT], [Run("a", 1050), Run("z", 1060)]).wrong == {"phantom": ("z",)}
    assert judge([SENT], [Run("a", 1050)], dead=["z"]).wrong == {"phantom": ("z",)}


@pytest.mark.parametrize("error", ["BrokerUnavailable", "BrokerBlocked", "PublishRejected", "Unroutable"])
def test_a_job_that_runs_after_a_definite_send_error_is_a_ghost(error: str) -> None:
    refused = dataclasses.replace(SENT, outcome=error)

    assert judge([refused], [Run("a", 1050)]).wrong == {"ghost": ("a",)}
    assert judge([refused], []).wrong == {}


def test_a_job_with_an_unknown_send_may_run_or_not() -> None:
    unknown = dataclasses.replace(SENT, outcome=UNKNOWN)

    assert judge([unknown], []).wrong == {}
    assert judge([unknown], []).recovered == 0
    assert judge([unknown], [Run("a", 1050)]).wrong == {}
    assert judge([unknown], [Run("a", 1050)]).recovered == 1


def test_a_job_that_runs_before_its_time_is_early() -> None:
    delayed = dataclasses.replace(SENT, due=5000)

    assert judge([delayed], [Run("a", 4999)]).wrong == {"early": ("a",)}
    assert judge([delayed], [Run("a", 5000)]).wrong == {}


def test_a_job_that_runs_twice_needs_a_fault_that_explains_it() -> None:
    runs = [Run("a", 1050), Run("a", 3000)]

    assert judge([SENT], runs).wrong == {"unexplained": ("a",)}
    assert judge([SENT], runs, faults=[Fault("kill", 3001, 4000)]).wrong == {"unexplained": ("a",)}
    story = judge([SENT], runs, faults=[Fault("kill", 500, 999), Fault("cut", 4000, 4100)])
    assert story.wrong == {"unexplained": ("a",)}
    assert "ran at [50, 2000], before: ('kill', -500, -1), after: ('cut', 3000)" in str(story)

    explained = judge([SENT], runs, faults=[Fault("kill", 2000, 2500)])
    assert explained.wrong == {}
    assert (explained.duplicated, explained.runs) == (1, 2)


def test_an_error_other_than_a_send_error_is_wrong() -> None:
    assert judge([dataclasses.replace(SENT, outcome="!KeyError")], []).wrong == {"untyped": ("a",)}


def test_a_send_that_exceeds_its_deadline_by_more_than_a_second_is_late() -> None:
    assert judge([dataclasses.replace(SENT, took=4001)], [Run("a", 6000)], deadline=3).wrong == {"late": ("a",)}


def test_a_send_is_not_late_for_the_time_in_which_its_process_did_not_run() -> None:
    slow = dataclasses.replace(SENT, took=4300)

    assert judge([slow], [Run("a", 6000)], deadline=3, stall=0.4).wrong == {}
    assert judge([slow], [Run("a", 6000)], deadline=3, stall=0.2).wrong == {"late": ("a",)}
    assert judge([dataclasses.replace(SENT, took=4000)], [Run("a", 6000)], deadline=3).wrong == {}


def test_errors_are_counted_by_type() -> None:
    sends = [
        SENT,
        Send("b", "BrokerBlocked", 1000, 3000),
        Send("c", "BrokerBlocked", 1000, 3100),
        Send("d", UNKNOWN, 1000, 5),
    ]
    verdict = judge(sends, [Run("a", 1050)])

    assert verdict.outcomes == {OK: 1, "BrokerBlocked": 2, UNKNOWN: 1}
    assert verdict.slowest == 3100
    assert "BrokerBlocked 2" in str(verdict)
