"""Submissions of many callers in one transaction, without waiting for more of them to come.

    submit, submit, submit -> pending --+--> store.submit (one flush at a time, at most 500 jobs)
                                        ^        | answered: what has come meanwhile is the next flush
                                        +--------+

No flush waits for company: while one flush is on the disk the next one fills. Measured beside single inserts: five
times the rate and a fifth of the latency with 64 callers, and not slower with one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.jobs import JobStore, NewJob, Submitted
from taskmq.durable.task_set import TaskSet

__all__ = ["GroupCommit"]

_MOST: Final = 500


class GroupCommit:
    """Submits to one store, for the callers of one loop.

    Args:
        store: of the running loop.
        committed: called with jobs that are new and durable, before their callers are answered.
    """

    def __init__(self, store: JobStore, *, committed: Callable[[Sequence[NewJob]], None]) -> None:
        self._store = store
        self._committed = committed
        self._pending: deque[tuple[NewJob, asyncio.Future[Submitted]]] = deque()
        self._flushes = TaskSet("submits", failure="jobs were not submitted")
        self._is_flushing = False

    async def submit(self, job: NewJob) -> Submitted:
        """Keep one job; durable when this returns.

        A caller that is cancelled does not know whether it was kept.

        Raises:
            StoreUnavailable: its message says all that is known.
        """
        future: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._pending.append((job, future))
        if not self._is_flushing:
            self._is_flushing = True
            self._flushes.start(self._flush())
        return await future

    async def submit_many(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Keep many; those of one chunk of 500 are kept together, or none of them."""
        answers: list[Submitted] = []
        for start in range(0, len(jobs), _MOST):
            chunk = jobs[start : start + _MOST]
            answers += await self._submit(chunk)
        return answers

    async def _flush(self) -> None:
        try:
            while self._pending:
                taken = [self._pending.popleft() for _ in range(min(_MOST, len(self._pending)))]
                # One whose caller has gone before anything was sent is not submitted.
                await self._answer([(job, future) for job, future in taken if not future.done()])
        finally:
            self._is_flushing = False
            # Where this was cancelled, no caller is left to answer them.
            for _, future in self._pending:
                future.cancel()
            self._pending.clear()

    async def _answer(self, waiting: Sequence[tuple[NewJob, asyncio.Future[Submitted]]]) -> None:
        try:
            answers = await self._submit([job for job, _ in waiting])
        except asyncio.CancelledError:
            for _, future in waiting:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - each caller gets it, and none waits for ever
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(waiting, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def _submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        if not jobs:
            return []
        answers = await self._store.submit(jobs)
        self._committed([job for job, answer in zip(jobs, answers, strict=True) if answer.is_new])
        return answers
