"""Results of many jobs, in the order in which they come."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from taskmq.errors import ResultTimeout
from taskmq.jobs.handle import Job, JobOutcome
from taskmq.model.units import Duration, parse_duration

__all__ = ["AsCompleted"]

R = TypeVar("R")
T = TypeVar("T")


class _RunSync(Protocol):
    def __call__(self, call: Coroutine[Any, Any, T], *, instead: str) -> T: ...


class AsCompleted(Generic[R]):
    """Iterates, with `async for` or `for`, over jobs and how they ended, each as soon as it has.

    All are waited for over one connection, without polling. A failed job does not end the iteration: its outcome says
    so.

    Raises:
        ResultTimeout: some have not ended in time; they go on.
        StateUnavailable: the state could not be reached when a wait began.
        UnsupportedFeature: the app has no state, or a task keeps no results.
    """

    def __init__(self, jobs: Iterable[Job[R]], *, timeout: Duration | None, run_sync: _RunSync) -> None:
        self._jobs = list(jobs)
        self._limit = None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()
        self._run_sync = run_sync

    async def __aiter__(self) -> AsyncGenerator[tuple[Job[R], JobOutcome[R]], None]:
        loop = asyncio.get_running_loop()
        deadline = None if self._limit is None else loop.time() + self._limit
        ended: asyncio.Queue[tuple[Job[R], asyncio.Task[JobOutcome[R]]]] = asyncio.Queue()
        waits: set[asyncio.Task[JobOutcome[R]]] = set()
        try:
            for job in self._jobs:
                wait = loop.create_task(job.aoutcome())
                waits.add(wait)
                wait.add_done_callback(_telling(ended, job))
            while waits:
                try:
                    async with asyncio.timeout_at(deadline):
                        job, wait = await ended.get()
                except TimeoutError:
                    raise ResultTimeout(
                        f"{len(waits)} of {len(self._jobs)} jobs have not ended within {self._limit:g} s; they go on"
                    ) from None
                waits.discard(wait)
                yield job, wait.result()
        finally:
            for wait in waits:
                wait.cancel()
            # What they have come to is looked at by nobody.
            await asyncio.gather(*waits, return_exceptions=True)

    def __iter__(self) -> Iterator[tuple[Job[R], JobOutcome[R]]]:
        coming = self.__aiter__()
        try:
            while (one := self._run_sync(_next(coming), instead="async for")) is not None:
                yield one
        finally:
            self._run_sync(coming.aclose(), instead="async for")


async def _next(coming: AsyncGenerator[T, None]) -> T | None:
    return await anext(coming, None)


def _telling(
    ended: "asyncio.Queue[tuple[Job[R], asyncio.Task[JobOutcome[R]]]]", job: Job[R]
) -> Callable[["asyncio.Task[JobOutcome[R]]"], None]:
    return lambda wait: ended.put_nowait((job, wait))
