"""Outcome of an attempt whose run raised an error. Pure."""

from collections.abc import Callable

from taskmq.control_flow import CallMismatch, find_suspension
from taskmq.errors import (
    Ignore,
    InvalidOption,
    MemoryExceeded,
    Reject,
    ResultTooLarge,
    Retry,
    Snooze,
    TaskTimeout,
    WorkerLost,
)
from taskmq.model.outcome import Cancelled, Dead, DeadReason, Interrupted, Outcome, Retried, Snoozed
from taskmq.model.retry import RetryPolicy
from taskmq.model.units import parse_duration
from taskmq.worker.settlement.outages import MOST_OUTAGES, is_outage, pause_after


def outcome_of_error(
    error: BaseException,
    *,
    policy: RetryPolicy | None,
    attempt: int,
    fraction: Callable[[], float],
    outages: int = MOST_OUTAGES,
) -> Outcome:
    """Return the outcome of an attempt that raised `error`.

    Args:
        policy: the task's retry policy; None for no retries.
        attempt: from 1.
        fraction: draws a random number from 0 to 1, for the jitter of pauses.
        outages: number of outages that interrupted the attempt; from `MOST_OUTAGES` on, the next one is a failure.
    """
    try:
        match error:
            case Snooze(delay=delay):
                return Snoozed(parse_duration(delay, what="Snooze"))
            case Retry(delay=delay):
                if policy is None or attempt >= policy.max_attempts:
                    return Dead("error", error)
                wait = (
                    policy.delay(attempt, fraction=fraction())
                    if delay is None
                    else parse_duration(delay, what="Retry")
                )
                return Retried(wait, error)
            case Reject():
                return Dead("rejected", error)
            case Ignore(reason=reason):
                return Cancelled(reason)
            case ResultTooLarge():
                return Dead("result", error)
            case _:
                pass
    except InvalidOption as bad_delay:
        return Dead("error", bad_delay)
    if (suspension := find_suspension(error)) is not None:
        is_held = isinstance(suspension, CallMismatch)
        return Snoozed(suspension.left, until=suspension.until, suspension=suspension.reason, is_held=is_held)
    if outages < MOST_OUTAGES and is_outage(error) and not (policy is not None and isinstance(error, policy.never)):
        return Interrupted(delay=pause_after(outages, fraction=fraction()), error=error)
    if policy is not None and policy.retries(error, attempt=attempt):
        return Retried(policy.delay(attempt, fraction=fraction()), error)
    return Dead(_reason(error), error)


def _reason(error: BaseException) -> DeadReason:
    if isinstance(error, TaskTimeout):
        return "timeout"
    if isinstance(error, MemoryExceeded):
        return "memory"
    return "worker_lost" if isinstance(error, WorkerLost) else "error"
