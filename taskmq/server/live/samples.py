"""Looks at the broker that several callers share: fifty open dashboards cost it no more than one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

from litestar.datastructures import State
from litestar.params import QueryParameter

from taskmq.app import TaskMQ

__all__ = ["MaxAge", "shared_look"]

T = TypeVar("T")

MaxAge = Annotated[
    float, QueryParameter(ge=0, le=60, description="So many seconds old an answer may be; then callers share one.")
]
_MOST: Final = 1_000


class _Sample:
    """The last answer to one question, and when it was had; and the last failure, of how many."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.at: float | None = None
        self.answer: Any = None
        self.failures = 0
        self.failure: Exception | None = None


async def shared_look(state: State, name: str, max_age: float, look: Callable[[], Awaitable[T]]) -> T:
    """The answer to a question, which may be as old as `max_age` seconds; else look, one caller for all.

    Args:
        name: of the question; everybody who asks by it gets the same answer. Who waits for a look that fails gets its
            failure: else each would wait for one more that does.
    """
    if not max_age:
        return await look()
    app: TaskMQ = state["app"]
    samples: dict[str, _Sample] = state.setdefault("samples", {})
    if len(samples) > _MOST:
        samples.clear()
    sample = samples.setdefault(name, _Sample())
    # A caller that comes while another one looks gets what that one sees.
    asked, failures = app.sessions.clock.monotonic(), sample.failures
    async with sample.lock:
        if sample.at is None or asked - sample.at > max_age:
            if sample.failure is not None and sample.failures > failures:
                raise sample.failure
            try:
                sample.answer = await look()
            except Exception as error:
                sample.failures += 1
                sample.failure = error
                raise
            sample.at = app.sessions.clock.monotonic()
        answer: T = sample.answer
        return answer
