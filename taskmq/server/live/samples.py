"""Reads shared by several callers, so that fifty open dashboards cost the broker no more than one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

from litestar.datastructures import State
from litestar.params import QueryParameter

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import AcceptedAge, accept_age, accepted_age

T = TypeVar("T")

MaxAge = Annotated[
    float,
    QueryParameter(
        ge=0, le=60, description="Maximum age of the response in seconds. Callers share a cached response."
    ),
]
_MOST: Final = 1_000


class _Sample:
    """The last result of a read with its time and age, and the last failure with the number of failures."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.at: float | None = None
        self.answer: Any = None
        self.age = 0.0
        self.failures = 0
        self.failure: Exception | None = None


async def read_shared(state: State, name: str, max_age: float, read: Callable[[], Awaitable[T]]) -> T:
    """Return a result that is at most `max_age` seconds old, or read it once for all waiting callers.

    Args:
        name: the key of the result. Callers that wait for a read that fails receive its failure instead of retrying
            one after another.
    """
    if not max_age:
        return await read()
    app: TaskMQ = state["app"]
    samples: dict[str, _Sample] = state.setdefault("samples", {})
    if len(samples) > _MOST:
        samples.clear()
    sample = samples.setdefault(name, _Sample())
    accepted = accepted_age()
    # A caller that arrives during a read shares its result.
    asked, failures = app.sessions.clock.monotonic(), sample.failures
    async with sample.lock:
        if sample.at is None or asked - sample.at > max_age or _is_too_old(sample, accepted, asked):
            if sample.failure is not None and sample.failures > failures:
                raise sample.failure
            try:
                with accept_age(0.0 if accepted is None else accepted.limit) as own:
                    sample.answer = await read()
            except Exception as error:
                sample.failures += 1
                sample.failure = error
                raise
            sample.at = app.sessions.clock.monotonic()
            sample.age = own.age
        if accepted is not None and sample.age:
            accepted.note(sample.age + app.sessions.clock.monotonic() - sample.at)
        answer: T = sample.answer
        return answer


def _is_too_old(sample: _Sample, accepted: AcceptedAge | None, asked: float) -> bool:
    """Whether the result is older than the caller accepts, with the age that it had at the replica."""
    return accepted is not None and sample.at is not None and sample.age + asked - sample.at > accepted.limit
