"""Requests to save values, and the run that may."""

import msgspec
import pytest

from taskmq.errors import MalformedMessage
from taskmq.model.history.journals import (
    NO_HEAD,
    SaveAnswer,
    SaveHead,
    SaveRequest,
    after_request,
    decode_answers,
    encode_answers,
)


def _request(number: int, *, run: str = "a", base: int = 0, fence: int = 0) -> SaveRequest:
    return SaveRequest(reply="worker.saved.w1", number=number, run=run, base=base, fence=fence, name="checkpoint")


def test_the_first_run_of_a_job_gets_the_time_as_its_fence() -> None:
    assert after_request(NO_HEAD, _request(1), now=1000) == SaveHead(0, 1000, "a", 1)


def test_a_later_run_gets_a_larger_fence_even_if_the_clock_went_back() -> None:
    assert after_request(SaveHead(3, 1000, "a", 4), _request(1, run="b", base=3), now=7) == SaveHead(3, 1001, "b", 1)


def test_a_run_may_begin_without_a_signal_but_not_without_a_value_of_an_earlier_run() -> None:
    head = SaveHead(5, 1000, "a", 4)

    assert after_request(head, _request(1, run="b", base=3), now=7, signals=2) == SaveHead(5, 1001, "b", 1)
    assert after_request(head, _request(1, run="b", base=2), now=7, signals=2) is None
    assert after_request(head, _request(1, run="b", base=3), now=7) is None


def test_each_save_is_counted_once() -> None:
    head = SaveHead(0, 1000, "a", 1)

    first = after_request(head, _request(2, fence=1000), now=2000)

    assert first is not None
    assert first == SaveHead(1, 1000, "a", 2)
    assert after_request(first, _request(2, fence=1000), now=2000) is first
    assert after_request(first, _request(1), now=2000) is first


def test_a_run_without_the_newest_values_may_not_begin() -> None:
    assert after_request(SaveHead(3, 1000, "a", 4), _request(1, run="b", base=2), now=2000) is None


def test_an_earlier_run_may_not_save_after_a_later_one_began() -> None:
    assert after_request(SaveHead(3, 1001, "b", 1), _request(5, fence=1000, base=3), now=2000) is None


def test_answers_are_read_back() -> None:
    answers = [SaveAnswer("a", 1, 1000), SaveAnswer("b", 2, 0)]

    assert decode_answers(encode_answers(answers)) == answers


def test_other_announcements_are_no_answers() -> None:
    with pytest.raises(MalformedMessage, match="not answers to saves"):
        decode_answers(b'{"a": 1}')


def test_the_topic_of_an_answer_is_one_of_workers() -> None:
    with pytest.raises(msgspec.ValidationError, match="reply"):
        msgspec.json.decode(b'{"reply": "job.events", "number": 1, "run": "a"}', type=SaveRequest)
