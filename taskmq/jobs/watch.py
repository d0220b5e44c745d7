"""What happens to one job, as it happens: for pages that show it.

The end is waited for where results are, by a subscription. Progress and state are looked at now and then, since they
come too often to be announced. A look asks the state once, or twice before the task has reported any progress.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar, assert_never

import msgspec

from taskmq.client.job_service import JobService
from taskmq.client.progress import JobProgress
from taskmq.errors import ResultExpired, StateUnavailable, TaskFailed
from taskmq.jobs.outcome import JobOutcome
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import JobState
from taskmq.model.values.wire_form import encode_json

__all__ = ["EndNews", "JobNews", "ProgressNews", "StateNews", "sse_text", "watch"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# So that watchers who began together do not look together.
_SPREAD: Final = (0.8, 1.2)


class StateNews(msgspec.Struct, frozen=True):
    """The job has another state, see `Job.state`; or this is the first one reported."""

    state: JobState


class ProgressNews(msgspec.Struct, frozen=True):
    """The job's task has reported how far it is."""

    progress: JobProgress


class EndNews(msgspec.Struct, Generic[R_co], frozen=True):
    """The job has ended; nothing comes after it."""

    outcome: JobOutcome[R_co]


JobNews = StateNews | ProgressNews | EndNews[R_co]


async def watch(
    jobs: JobService,
    job_id: str,
    *,
    every: float,
    was_sent: bool,
    ends: Callable[[], Awaitable[JobOutcome[R]]],
) -> AsyncGenerator[JobNews[R], None]:
    """See `Job.watch`.

    Args:
        every: seconds between two looks, about.
        was_sent: the caller knows that the broker has the job, or had it.
        ends: waits for the end.
    """
    waits = asyncio.ensure_future(ends())
    state: JobState | None = None
    progress: JobProgress | None = None
    try:
        if await _has_ended(jobs, job_id, was_sent=was_sent):
            # It has no other news.
            await asyncio.wait((waits,))
        while not waits.done():
            # Who watches goes on while the state does not answer; that it cannot be reached at all, the wait says.
            with contextlib.suppress(StateUnavailable):
                now, told = await _look(jobs, job_id, was_sent=was_sent)
                if now is not state and not now.is_final:
                    state = now
                    yield StateNews(now)
                if told is not None and told != progress:
                    progress = told
                    yield ProgressNews(told)
            await asyncio.wait((waits,), timeout=every * random.uniform(*_SPREAD))
        outcome = waits.result()
        with contextlib.suppress(StateUnavailable):
            told = await jobs.find_progress(job_id)
            if told is not None and (progress is None or told.done != progress.done or told.note != progress.note):
                yield ProgressNews(told)
        yield EndNews(outcome)
    finally:
        waits.cancel()
        await asyncio.wait((waits,))


async def _has_ended(jobs: JobService, job_id: str, *, was_sent: bool) -> bool:
    try:
        return (await jobs.state_of(job_id, was_sent=was_sent)).is_final
    except ResultExpired:
        return True
    except StateUnavailable:
        return False


async def _look(jobs: JobService, job_id: str, *, was_sent: bool) -> tuple[JobState, JobProgress | None]:
    if (told := await jobs.find_progress(job_id)) is not None:
        return told.state, told
    if jobs.sent.sessions.delay == "state" and (waiting := await jobs.sent.find_waiting(job_id)) is not None:
        attempt = decode_envelope(waiting.body, waiting.content_type).attempt
        return (JobState.RETRYING if attempt > 1 else JobState.SCHEDULED), None
    return (JobState.QUEUED if was_sent else JobState.UNKNOWN), None


def sse_text(news: JobNews[Any]) -> str:
    """The news as one server-sent event: `state`, `progress` or `end`, with JSON as its data.

    An `end` has `state`, `attempts` and `result`, or `error` with the type and the message; no traceback, which is
    for operators.

    Raises:
        EncodeError: the result has no form as JSON.
    """
    match news:
        case StateNews(state):
            return _event("state", {"state": state})
        case ProgressNews(progress):
            return _event(
                "progress",
                {
                    "done": progress.done,
                    "total": progress.total,
                    "fraction": progress.fraction,
                    "note": progress.note,
                    "attempt": progress.attempt,
                },
            )
        case EndNews(outcome):
            return _event("end", _end_of(outcome))
        case _:
            assert_never(news)


def _end_of(outcome: JobOutcome[Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"state": outcome.state, "attempts": outcome.attempts}
    error = outcome.error
    if error is None:
        return {**facts, "result": msgspec.Raw(encode_json(outcome.result()))}
    if isinstance(error, TaskFailed):
        return {**facts, "error": {"type": error.type_name, "message": error.message}}
    return {**facts, "error": {"type": type(error).__name__, "message": str(error)}}


def _event(name: str, facts: dict[str, Any]) -> str:
    # JSON has no line breaks, so it is one line of data.
    return f"event: {name}\ndata: {msgspec.json.encode(facts).decode()}\n\n"
