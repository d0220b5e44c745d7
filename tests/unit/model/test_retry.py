import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq.errors import InvalidOption
from taskmq.model.retry import Backoff, RetryPolicy, RunOptions, coarse_delay

_backoffs: list[Backoff] = ["exponential", "linear", "constant"]
_durations = st.timedeltas(min_value=timedelta(0)) | st.timedeltas(
    min_value=timedelta(0), max_value=timedelta(microseconds=50)
)
_policies = st.builds(
    RetryPolicy, backoff=st.sampled_from(_backoffs), base=_durations, cap=_durations, jitter=st.booleans()
)
_attempts = st.integers(1, 200) | st.integers(1, 10**30)


@given(_policies, _attempts, st.floats(0, 1))
def test_a_delay_is_between_zero_and_the_ceiling_and_the_ceiling_within_the_cap(
    policy: RetryPolicy, attempt: int, fraction: float
) -> None:
    ceiling = policy.ceiling(attempt)
    delay = policy.delay(attempt, fraction=fraction)

    assert timedelta(0) <= delay <= ceiling
    assert ceiling <= policy.cap  # type: ignore[operator]  # these policies were given a timedelta


@given(_policies, _attempts, _attempts)
def test_the_ceiling_never_falls_from_one_attempt_to_a_later_one(policy: RetryPolicy, one: int, other: int) -> None:
    earlier, later = sorted((one, other))

    assert policy.ceiling(earlier) <= policy.ceiling(later)


@given(_policies.filter(lambda policy: policy.base != timedelta(0) and policy.backoff != "constant"))
def test_a_growing_ceiling_reaches_the_cap(policy: RetryPolicy) -> None:
    assert policy.ceiling(10**30) == policy.cap


@given(_policies, _attempts)
def test_without_jitter_the_delay_is_the_ceiling_whatever_is_drawn(policy: RetryPolicy, attempt: int) -> None:
    exact = dataclasses.replace(policy, jitter=False)

    assert {exact.delay(attempt, fraction=fraction) for fraction in (0.0, 0.3, 1.0)} == {policy.ceiling(attempt)}


@given(_policies, _attempts)
def test_jitter_draws_from_the_whole_range(policy: RetryPolicy, attempt: int) -> None:
    jittered = dataclasses.replace(policy, jitter=True)

    assert jittered.delay(attempt, fraction=0) == timedelta(0)
    assert jittered.delay(attempt, fraction=1) == policy.ceiling(attempt)


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        ("exponential", [1, 2, 4, 8, 16, 30, 30]),
        ("linear", [1, 2, 3, 4, 5, 6, 7]),
        ("constant", [1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_the_ceilings_of_the_first_attempts(backoff: Backoff, seconds: list[int]) -> None:
    policy = RetryPolicy(backoff=backoff, base=1, cap="30s")

    assert [policy.ceiling(attempt).total_seconds() for attempt in range(1, 8)] == seconds


def test_a_base_above_the_cap_is_cut_from_the_start() -> None:
    for backoff in _backoffs:
        assert RetryPolicy(backoff=backoff, base=10, cap=3).ceiling(1) == timedelta(seconds=3)


def test_rounding_never_exceeds_a_tiny_cap() -> None:
    policy = RetryPolicy(
        backoff="linear", base=timedelta(microseconds=2), cap=timedelta(microseconds=5), jitter=False
    )

    assert policy.ceiling(3) == timedelta(microseconds=5)


def test_the_default_retry_is_five_attempts_from_one_second_to_five_minutes() -> None:
    policy = RetryPolicy()

    assert (policy.max_attempts, policy.backoff, policy.jitter) == (5, "exponential", True)
    assert (policy.ceiling(1), policy.ceiling(100)) == (timedelta(seconds=1), timedelta(minutes=5))


def test_the_last_attempt_is_not_followed_by_another() -> None:
    policy = RetryPolicy(max_attempts=3)

    assert [policy.retries(ValueError(), attempt=attempt) for attempt in (1, 2, 3, 4)] == [True, True, False, False]


def test_a_single_attempt_is_never_retried() -> None:
    assert not RetryPolicy(max_attempts=1).retries(ValueError(), attempt=1)


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (OSError(), True),
        (ConnectionError(), True),
        (FileNotFoundError(), False),
        (ValueError(), False),
        (KeyboardInterrupt(), False),
    ],
    ids=repr,
)
def test_on_and_never_match_by_class_and_never_wins(error: BaseException, *, is_retried: bool) -> None:
    policy = RetryPolicy(on=(OSError,), never=(FileNotFoundError,))

    assert policy.retries(error, attempt=1) is is_retried


def test_every_error_of_a_task_is_retried_by_default() -> None:
    policy = RetryPolicy()

    assert policy.retries(ZeroDivisionError(), attempt=1)
    assert policy.retries(KeyboardInterrupt(), attempt=1)
    assert policy.retries(SystemExit(), attempt=1)
    assert not RetryPolicy(never=(SystemExit,)).retries(SystemExit(), attempt=1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"max_attempts": 2.5}, "max_attempts"),
        ({"max_attempts": None}, "max_attempts"),
        ({"backoff": "quadratic"}, "backoff"),
        ({"backoff": None}, "backoff"),
        ({"base": -1}, "base"),
        ({"base": "soon"}, "base"),
        ({"cap": None}, "cap"),
        ({"cap": "-1s"}, "cap"),
        ({"on": ("OSError",)}, "on"),
        ({"on": "OSError"}, "on"),
        ({"on": (OSError(),)}, "on"),
        ({"never": (int,)}, "never"),
        ({"never": [OSError]}, "never"),
        ({"on": OSError}, "on"),
    ],
    ids=repr,
)
def test_an_invalid_value_is_refused_at_definition_by_its_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOption, match=f"^{named}="):
        RetryPolicy(**options)


def test_policies_with_the_same_values_are_equal_and_hash_alike() -> None:
    assert RetryPolicy() == RetryPolicy()
    assert hash(RetryPolicy()) == hash(RetryPolicy())
    assert RetryPolicy() != RetryPolicy(max_attempts=6)


def test_a_changed_copy_has_the_new_ceilings() -> None:
    policy = dataclasses.replace(RetryPolicy(), base="10s", cap="1h")

    assert (policy.ceiling(1), policy.ceiling(99)) == (timedelta(seconds=10), timedelta(hours=1))


@given(st.integers(0, 2**40), st.sampled_from([1, 125, 1000]))
def test_a_coarse_delay_is_never_shorter_and_at_most_a_quarter_longer(milliseconds: int, unit: int) -> None:
    coarse = coarse_delay(milliseconds, unit=unit)
    units = -(-milliseconds // unit)

    assert coarse % unit == 0
    assert units * unit <= coarse <= units * unit * 1.25
    assert (coarse // unit).bit_count() <= 3


def test_a_coarse_delay_has_three_significant_bits() -> None:
    assert [coarse_delay(units, unit=1) for units in (0, 7, 8, 9, 16, 17)] == [0, 7, 8, 10, 16, 20]


@given(st.integers(0, 2**40))
def test_a_coarse_delay_is_not_rounded_again(milliseconds: int) -> None:
    coarse = coarse_delay(milliseconds)

    assert coarse_delay(coarse) == coarse


def test_a_job_overrides_single_fields_of_its_tasks_policy() -> None:
    own = RetryPolicy(max_attempts=7, base="1m", never=(KeyError,))
    run = RunOptions(max_attempts=2, backoff="constant", base=10_000, cap=60_000, jitter=False)

    changed = RetryPolicy(max_attempts=2, backoff="constant", base="10s", cap="60s", jitter=False, never=(KeyError,))
    assert run.policy(own) == dataclasses.replace(changed, base=timedelta(seconds=10), cap=timedelta(seconds=60))
    assert RunOptions(jitter=False).policy(None) == RetryPolicy(jitter=False)


def test_a_job_without_retry_options_has_its_tasks_policy() -> None:
    own = RetryPolicy()

    assert RunOptions(timeout=5).policy(own) is own
    assert RunOptions(timeout=5).policy(None) is None
    assert RunOptions(once=True).policy(own) is None
