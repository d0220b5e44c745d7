from asyncio import CancelledError
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Ignore, Reject, Retry, RetryPolicy, Snooze
from taskmq.control_flow import CallMismatch, Suspension
from taskmq.errors import (
    InvalidArguments,
    InvalidOption,
    MemoryExceeded,
    ResultTooLarge,
    SoftTimeout,
    TaskTimeout,
    WorkerLost,
)
from taskmq.model.outcome import Cancelled, Dead, Outcome, Retried, Snoozed
from taskmq.worker.settlement.outcome_of_error import outcome_of_error

POLICY = RetryPolicy(max_attempts=3, base="10s", jitter=True)


def _verdict(error: BaseException, *, policy: RetryPolicy | None = POLICY, attempt: int = 1) -> Outcome:
    return outcome_of_error(error, policy=policy, attempt=attempt, fraction=lambda: 0.5)


def test_an_error_is_retried_after_the_delay_of_the_policy_with_jitter() -> None:
    error = ValueError("no")

    assert _verdict(error, attempt=1) == Retried(timedelta(seconds=5), error)
    assert _verdict(error, attempt=2) == Retried(timedelta(seconds=10), error)


def test_the_last_attempt_and_a_task_without_a_policy_end_dead() -> None:
    error = ValueError("no")

    assert _verdict(error, attempt=3) == Dead("error", error)
    assert _verdict(error, attempt=99) == Dead("error", error)
    assert _verdict(error, policy=None) == Dead("error", error)


def test_the_policy_selects_retryable_errors() -> None:
    picky = RetryPolicy(on=(OSError,), never=(PermissionError,))
    refused, denied = ConnectionRefusedError(), PermissionError()

    assert isinstance(_verdict(refused, policy=picky), Retried)
    assert _verdict(denied, policy=picky) == Dead("error", denied)
    assert isinstance(_verdict(ValueError("no"), policy=picky), Dead)


@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), CancelledError("own")], ids=repr
)
def test_an_exit_in_a_task_is_a_failure_like_any_other(error: BaseException) -> None:
    assert _verdict(error) == Retried(timedelta(seconds=5), error)
    assert _verdict(error, attempt=3) == Dead("error", error)
    assert _verdict(error, policy=RetryPolicy(on=(OSError,))) == Dead("error", error)
    assert _verdict(error, policy=RetryPolicy(never=(type(error),))) == Dead("error", error)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TaskTimeout("slow"), "timeout"),
        (SoftTimeout(), "timeout"),
        (MemoryExceeded("much", limit=1), "memory"),
        (WorkerLost("gone"), "worker_lost"),
    ],
)
def test_a_dead_job_names_a_timeout_or_a_lost_process(error: Exception, reason: str) -> None:
    assert isinstance(_verdict(error, attempt=1), Retried)
    assert _verdict(error, attempt=3) == Dead(reason, error)  # type: ignore[arg-type]


def test_an_oversized_result_does_not_repeat_the_work() -> None:
    error = ResultTooLarge("shop.report", size=2000, limit=1000)

    assert _verdict(error) == Dead("result", error)
    assert str(error).startswith("the result of task shop.report has 2,000 bytes, the limit is 1,000: ")


def test_an_invalid_call_by_the_task_is_an_error_like_any_other() -> None:
    error = InvalidArguments("no")

    assert isinstance(_verdict(error, attempt=1), Retried)
    assert _verdict(error, attempt=3) == Dead("error", error)


def test_a_requested_retry_counts_as_an_attempt() -> None:
    retry = Retry()

    assert _verdict(retry, attempt=2) == Retried(timedelta(seconds=10), retry)
    assert _verdict(retry, attempt=3) == Dead("error", retry)
    assert _verdict(retry, policy=None) == Dead("error", retry)


def test_a_retry_with_its_own_delay_has_no_jitter() -> None:
    retry = Retry(delay="1m")

    assert _verdict(retry) == Retried(timedelta(minutes=1), retry)


def test_a_requested_retry_ignores_the_errors_of_the_policy() -> None:
    assert isinstance(_verdict(Retry(), policy=RetryPolicy(on=(OSError,), never=(Retry,))), Retried)


@given(attempt=st.integers(1, 1000), seconds=st.floats(0, 1e6))
def test_a_snooze_never_counts_and_never_ends(attempt: int, seconds: float) -> None:
    for policy in (POLICY, None):
        assert _verdict(Snooze(seconds), policy=policy, attempt=attempt) == Snoozed(timedelta(seconds=seconds))


def test_reject_and_ignore_end_the_job_with_any_attempts_left() -> None:
    reject = Reject("not mine")

    assert _verdict(reject) == Dead("rejected", reject)
    assert _verdict(Ignore("gone")) == Cancelled("gone")


@pytest.mark.parametrize(
    "error", [Snooze("soon"), Snooze(-1), Retry(delay="soon"), Retry(delay=float("nan")), Snooze(10**400)]
)
def test_an_invalid_delay_makes_a_dead_letter_that_says_so(error: Exception) -> None:
    outcome = _verdict(error)

    assert isinstance(outcome, Dead)
    assert outcome.reason == "error"
    assert isinstance(outcome.error, InvalidOption)


@given(
    attempt=st.integers(1, 2**31),
    fraction=st.floats(0, 1),
    backoff=st.sampled_from(["exponential", "linear", "constant"]),
    seconds=st.floats(0, 1e9),
)
def test_every_error_has_a_verdict_and_no_delay_is_negative(
    attempt: int, fraction: float, backoff: str, seconds: float
) -> None:
    policy = RetryPolicy(max_attempts=2**31, backoff=backoff, base=seconds, cap=seconds * 2)  # type: ignore[arg-type]

    outcome = outcome_of_error(ValueError("no"), policy=policy, attempt=attempt, fraction=lambda: fraction)

    assert isinstance(outcome, Dead) or (isinstance(outcome, Retried) and outcome.delay >= timedelta())


def test_a_suspended_run_continues_at_its_instant_in_the_same_attempt() -> None:
    suspension = Suspension("asleep", 7_000, timedelta(seconds=5))
    expected = Snoozed(timedelta(seconds=5), until=7_000, suspension="asleep")

    assert _verdict(suspension, policy=None, attempt=9) == expected
    assert _verdict(BaseExceptionGroup("tasks", [suspension])) == expected


def test_a_run_with_other_calls_than_an_earlier_one_is_held() -> None:
    mismatch = CallMismatch("its calls differ")
    expected = Snoozed(timedelta(0), until=0, suspension="its calls differ", is_held=True)

    assert _verdict(mismatch, policy=None, attempt=9) == expected
    assert _verdict(BaseExceptionGroup("tasks", [Suspension("asleep", 7, timedelta(1)), mismatch])) == expected
