"""Growing pauses."""

from hypothesis import given
from hypothesis import strategies as st

from taskmq.model.backoff import Backoff, backoff_pause

seconds = st.floats(0.001, 1000)


@given(st.integers(1, 10_000), seconds, seconds, st.floats(1, 4))
def test_no_pause_is_shorter_than_the_previous_one_or_longer_than_the_maximum(
    failures: int, first: float, longest: float, growth: float
) -> None:
    pause = backoff_pause(failures, first=first, longest=longest, growth=growth)
    after = backoff_pause(failures + 1, first=first, longest=longest, growth=growth)

    assert min(first, longest) <= pause <= after <= longest


def test_pauses_double_until_the_longest() -> None:
    backoff = Backoff(0.5, 3)

    assert [backoff.next() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    assert backoff.failures == 5


def test_pauses_start_over_after_a_success() -> None:
    backoff = Backoff(1, 8, growth=3)
    backoff.next()
    backoff.next()

    backoff.reset()

    assert backoff.failures == 0
    assert backoff.next() == 1


def test_a_pause_is_drawn_up_to_the_current_bound() -> None:
    backoff = Backoff(2, 8, draw=lambda pause: pause / 2)

    assert [backoff.next() for _ in range(4)] == [1, 2, 4, 4]
