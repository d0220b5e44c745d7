"""Operations of an operator on a stored job, and their effect. Pure."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from taskmq.model.states import CHANGEABLE, RESUMABLE, TERMINAL, JobState

Action = Literal["change", "cancel", "hold", "release", "retry"]
"""Operations:

- `change`: set another time, priority, queue, or other arguments;
- `cancel`: do not run it;
- `hold`: do not run it until it is released;
- `release`: allow it to run;
- `retry`: run now a job that waits for its time or its next attempt.
"""


RetryMode = Literal["new", "resume"]
"""Ways to run an ended job again:

- `new`: a new job repeats it from the beginning, and each names the other;
- `resume`: the same job continues under its id, with its next attempt and with what its runs saved.
"""


class Decision(msgspec.Struct, frozen=True):
    """The effect of an operation on a job.

    Attributes:
        state: the job's new state.
        is_request: the job keeps its state, and its worker is asked to stop.
        is_due: the job becomes due now.
    """

    state: JobState
    is_request: bool = False
    is_due: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """The reason why an operation is impossible, as the end of a sentence that begins with the job."""

    reason: str


_WAITS_FOR_TIME: Final = frozenset({JobState.SCHEDULED, JobState.RETRYING, JobState.HELD})


def ready_state(due: int, now: int) -> JobState:
    """Return the state of a job that only its due time may hold back; both instants in ms since the epoch."""
    return JobState.QUEUED if due <= now else JobState.SCHEDULED


def needs_time(action: Action, *, is_moved: bool) -> bool:
    """Return whether the effect of `action` depends on the present instant.

    Args:
        is_moved: the operation sets another due time.
    """
    return is_moved or action in ("release", "retry")


def retry_mode(state: JobState, *, is_named: bool, was_asked_to_end: bool) -> RetryMode:
    """Return the way to run an ended job again if the caller names none.

    Args:
        state: the state in which it ended.
        is_named: its submitter chose its id, by which others find it.
        was_asked_to_end: a worker was asked to stop it.
    """
    return "resume" if is_named and resumption_refusal(state, was_asked_to_end=was_asked_to_end) is None else "new"


def resumption_refusal(state: JobState, *, was_asked_to_end: bool) -> Refusal | None:
    """Return why an ended job cannot be resumed; None if it can. See `retry_mode`."""
    if state not in RESUMABLE:
        return Refusal(f"is {state}, so that it cannot go on: let another job repeat it (mode new)")
    if was_asked_to_end:
        # The cancellation request is remembered for a week and would stop the next run.
        return Refusal("was cancelled while it ran, so that it cannot go on: let another job repeat it (mode new)")
    return None


def decide(action: Action, state: JobState, *, due: int, now: int | None) -> Decision | Refusal:
    """Decide the effect of `action` on a job.

    Args:
        state: the job's state.
        due: its due time; for a change, the new one (ms since the epoch).
        now: ms since the epoch; None if nothing depends on it (`needs_time`).
    """
    if state in TERMINAL:
        return Refusal(f"has ended: it is {state}")
    if state not in CHANGEABLE:
        if action == "cancel":
            return Decision(state, is_request=True)
        return Refusal(f"is {state}: a worker has it, or is about to; it can be cancelled")
    return _DECISIONS[action](state, state if now is None else ready_state(due, now))


def _change(state: JobState, ready: JobState) -> Decision | Refusal:
    if state in (JobState.WAITING, JobState.HELD):
        return Decision(state)
    is_retry = state is JobState.RETRYING and ready is JobState.SCHEDULED
    return Decision(state if is_retry else ready)


def _cancel(state: JobState, ready: JobState) -> Decision | Refusal:
    del state, ready
    return Decision(JobState.CANCELLED)


def _hold(state: JobState, ready: JobState) -> Decision | Refusal:
    del state, ready
    return Decision(JobState.HELD)


def _release(state: JobState, ready: JobState) -> Decision | Refusal:
    if state is not JobState.HELD:
        return Refusal(f"is not held: it is {state}")
    # Its attempts show what was tried, so it becomes `scheduled`, not `retrying`. The store decides whether it waits
    # for other jobs.
    return Decision(ready)


def _retry(state: JobState, ready: JobState) -> Decision | Refusal:
    del ready
    if state is JobState.WAITING:
        return Refusal("waits for other jobs, whatever its time")
    return Decision(JobState.QUEUED, is_due=state in _WAITS_FOR_TIME)


_DECISIONS: Final[dict[Action, Callable[[JobState, JobState], Decision | Refusal]]] = {
    "change": _change,
    "cancel": _cancel,
    "hold": _hold,
    "release": _release,
    "retry": _retry,
}
