"""Times of connection attempts."""

import random

import pytest

from taskmq_rabbitmq.connect.backoff import patience, reconnect_backoff


@pytest.mark.parametrize(("lasted", "seconds"), [(0, 3), (12, 3), (20, 5), (60, 15), (120, 30), (3600, 30)])
def test_the_next_attempt_begins_after_a_quarter_of_the_previous_duration(lasted: float, seconds: float) -> None:
    assert patience(lasted) == seconds


def test_pauses_are_drawn_up_to_a_doubling_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda _least, most: most)
    backoff = reconnect_backoff()

    assert [backoff.next() for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0]
    backoff.reset()
    assert backoff.next() == 0.2
