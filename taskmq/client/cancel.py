"""Cancelling a job wherever it is: waiting in the state, at the broker, in a worker's hands, or running.

One that waits in the state is taken away there and then. For every other the state remembers the wish, workers hear
of it, and whoever has the job, or gets it, ends it as cancelled. Nothing is taken out of the broker's queues.
"""

from collections.abc import Callable
from typing import Final

from taskmq.client.session import Session
from taskmq.client.unique import release_waiting
from taskmq.contracts.stores import State
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.jobs.delayed import cancel, cancelled_record
from taskmq.model.states import JobState

__all__ = ["cancel_job"]

_REASON_LIMIT: Final = 500
_ENDED: Final = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.CANCELLED})


async def cancel_job(
    session: Session,
    job_id: str,
    *,
    reason: str,
    remember: float,
    result_ttl: Callable[[str], float],
    now: int,
    keeps_result: Callable[[str], bool],
    say: Callable[[str], None],
) -> bool:
    """Cancel a job; False where its result says that it has ended.

    Args:
        reason: for those who await its result, and for logs.
        remember: for how many seconds workers end it when they meet it.
        keeps_result: whether results of a task are kept, by its name.
        result_ttl: for how many seconds.
        say: tells the workers that listen.

    Raises:
        InvalidOption: the reason is too long.
        StateUnavailable: the state could not be reached; the job may be cancelled or not.
        UnsupportedFeature: there is no state.
    """
    if len(reason) > _REASON_LIMIT:
        raise InvalidOption(f"reason: at most {_REASON_LIMIT} characters, these are {len(reason)}")
    state = _state(session)
    if (message := await cancel(state.delays, job_id)) is not None:
        await release_waiting(state.claims, message)
        if keeps_result(message.task):
            await state.results.put(cancelled_record(message, reason=reason, now=now), ttl=result_ttl(message.task))
        return True
    found = await state.results.get(job_id)
    if found is not None and found.state in _ENDED:
        return False
    await state.revocations.revoke(job_id, reason=reason, ttl=remember)
    say(job_id)
    return True


def _state(session: Session) -> State:
    if session.state is None:
        raise UnsupportedFeature(
            "cancelling needs a state: TaskMQ(..., state='redis://...'), $TASKMQ_STATE, or local://PATH on one host"
        )
    return session.state
