"""What an operator may do to a job of the store, and what becomes of it. Pure."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from taskmq.model.states import CHANGEABLE, RESUMABLE, TERMINAL, JobState

__all__ = [
    "Action",
    "Decision",
    "Refusal",
    "RetryMode",
    "decide",
    "needs_time",
    "ready_state",
    "resumption_refusal",
    "retry_mode",
]

Action = Literal["change", "cancel", "hold", "release", "retry"]
"""What an operator asks for:

- `change`: another time, priority, queue, or other arguments;
- `cancel`: it is not to run;
- `hold`: it is not to run until it is released;
- `release`: it may;
- `retry`: it waits for its time or its next attempt, and is to run now.
"""


RetryMode = Literal["new", "resume"]
"""Ways to run a job again that has ended:

- `new`: another job repeats it from the beginning, and each names the other;
- `resume`: the same job goes on, under its id, with its next attempt, and with what its runs have saved.
"""


class Decision(msgspec.Struct, frozen=True):
    """What a change makes of a job.

    Attributes:
        state: the job's afterwards.
        is_request: nothing but a note is made, that its worker is asked to stop.
        is_due: its time is now, whatever it was.
    """

    state: JobState
    is_request: bool = False
    is_due: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """Why nothing is done, as the end of a sentence that begins with the job."""

    reason: str


_WAITS_FOR_TIME: Final = frozenset({JobState.SCHEDULED, JobState.RETRYING, JobState.HELD})


def ready_state(due: int, now: int) -> JobState:
    """The state of a job that nothing but its time may hold back; both in ms since the epoch."""
    return JobState.QUEUED if due <= now else JobState.SCHEDULED


def needs_time(action: Action, *, is_moved: bool) -> bool:
    """Whether it depends on the present instant what `action` does.

    Args:
        is_moved: the job is to have another time.
    """
    return is_moved or action in ("release", "retry")


def retry_mode(state: JobState, *, is_named: bool, was_asked_to_end: bool) -> RetryMode:
    """Return the way in which a job that has ended is run again unless a mode is named.

    Args:
        state: its end.
        is_named: its submitter chose its id, by which others look for it.
        was_asked_to_end: a worker was asked to stop it.
    """
    return "resume" if is_named and resumption_refusal(state, was_asked_to_end=was_asked_to_end) is None else "new"


def resumption_refusal(state: JobState, *, was_asked_to_end: bool) -> Refusal | None:
    """Why a job that has ended cannot go on; None where it can. See `retry_mode`."""
    if state not in RESUMABLE:
        return Refusal(f"is {state}, so that it cannot go on: let another job repeat it (mode new)")
    if was_asked_to_end:
        # The request is remembered for a week, and would stop the next run.
        return Refusal("was cancelled while it ran, so that it cannot go on: let another job repeat it (mode new)")
    return None


def decide(action: Action, state: JobState, *, due: int, now: int | None) -> Decision | Refusal:
    """What `action` does to a job.

    Args:
        state: the job's.
        due: when it is due; for a change, when it will be (ms since the epoch).
        now: ms since the epoch; None where nothing depends on it (`needs_time`).
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
    # What it has tried is in its attempts: it is `scheduled` again, and not `retrying`. Whether it waits for
    # other jobs is for the store to see.
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
