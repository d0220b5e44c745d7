"""Live news about one job, for pages that show it.

The end arrives through a subscription to the result. Progress and state are polled, because they change too often to
be announced. A poll reads a stored job and its progress from the store. For a sent job it asks the state once, or
twice before the task has reported any progress.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar, assert_never

import msgspec

from taskmq.client.job_service import JobService
from taskmq.client.progress import JobProgress
from taskmq.errors import ResultExpired, StateUnavailable, StoreUnavailable, TaskFailed
from taskmq.jobs.outcome import JobOutcome
from taskmq.model.envelope import decode_envelope
from taskmq.model.states import JobState
from taskmq.model.values.wire_form import encode_json

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

# Random factor, so that watchers that started together do not poll together.
_SPREAD: Final = (0.8, 1.2)


class StateNews(msgspec.Struct, frozen=True):
    """The first known state of a job, or a changed one; see `Job.state`."""

    state: JobState


class ProgressNews(msgspec.Struct, frozen=True):
    """New progress that the job's task has reported."""

    progress: JobProgress


class EndNews(msgspec.Struct, Generic[R_co], frozen=True):
    """The end of a job, which is the last news."""

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
    """Yield the news about a job until it ends; see `Job.watch`.

    Args:
        every: approximate seconds between two polls.
        was_sent: whether the caller knows that the job was sent to the broker.
        ends: waits for the end of the job.
    """
    waits = asyncio.ensure_future(ends())
    state: JobState | None = None
    progress: JobProgress | None = None
    try:
        if await _has_ended(jobs, job_id, was_sent=was_sent):
            # There is no other news.
            await asyncio.wait((waits,))
        while not waits.done():
            # Watching continues while no store answers; the wait for the end raises if it is unreachable.
            with contextlib.suppress(StateUnavailable, StoreUnavailable):
                now, latest = await _poll(jobs, job_id, was_sent=was_sent)
                if now is not state and not now.is_final:
                    state = now
                    yield StateNews(now)
                if latest is not None and latest != progress:
                    progress = latest
                    yield ProgressNews(latest)
            await asyncio.wait((waits,), timeout=every * random.uniform(*_SPREAD))
        outcome = waits.result()
        with contextlib.suppress(StateUnavailable, StoreUnavailable):
            last = await jobs.find_progress(job_id)
            if last is not None and (progress is None or last.done != progress.done or last.note != progress.note):
                yield ProgressNews(last)
        yield EndNews(outcome)
    finally:
        waits.cancel()
        await asyncio.wait((waits,))


async def _has_ended(jobs: JobService, job_id: str, *, was_sent: bool) -> bool:
    try:
        return (await jobs.state_of(job_id, was_sent=was_sent)).is_final
    except ResultExpired:
        return True
    except (StateUnavailable, StoreUnavailable):
        return False


async def _poll(jobs: JobService, job_id: str, *, was_sent: bool) -> tuple[JobState, JobProgress | None]:
    if (stored := await jobs.find_stored(job_id)) is not None:
        return stored
    if (found := await jobs.sent.find_progress(job_id)) is not None:
        return found.state, found
    if jobs.sent.sessions.delay == "state" and (waiting := await jobs.sent.find_waiting(job_id)) is not None:
        attempt = decode_envelope(waiting.body, waiting.content_type).attempt
        return (JobState.RETRYING if attempt > 1 else JobState.SCHEDULED), None
    return (JobState.QUEUED if was_sent else JobState.UNKNOWN), None


def sse_text(news: JobNews[Any]) -> str:
    """Format news as a server-sent event: `state`, `progress` or `end`, with JSON data.

    An `end` has `state`, `attempts` and `result`, or `error` with type and message. It has no traceback, which is for
    operators only.

    Raises:
        EncodeError: the result has no JSON form.
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
