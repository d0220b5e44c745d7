"""Group commit: concurrent submissions share one transaction.

    submit, submit, submit -> pending --+--> store.submit (one flush at a time, at most 500 jobs)
                                        ^        | committed: jobs that arrived meanwhile are the next flush
                                        +--------+

No flush waits for more jobs: while one flush is being committed, the next one fills. Compared with single inserts, 64
callers get five times the rate at a fifth of the latency. A caller that was alone last time submits its job itself:
a task would cost it a sixth of its processor time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.jobs import JobStore, NewJob, Submitted
from taskmq.durable.task_set import TaskSet

_MOST: Final = 500


class GroupCommit:
    """Group commit into one store, for the callers of one event loop.

    Args:
        store: the store of the running loop.
        on_commit: called with the new jobs once they are durable, before their callers return. It is also called with
            the job of a lone caller that is cancelled, which may not have been stored.
    """

    def __init__(self, store: JobStore, *, on_commit: Callable[[Sequence[NewJob]], None]) -> None:
        self._store = store
        self._on_commit = on_commit
        self._pending: deque[tuple[NewJob, asyncio.Future[Submitted]]] = deque()
        self._flushes = TaskSet("submits", failure="jobs were not submitted")
        self._is_flushing = False
        self._was_alone = False

    async def submit(self, job: NewJob) -> Submitted:
        """Submit one job. It is durable when this returns.

        If the caller is cancelled, the job may or may not have been stored; its lane is announced if it may. The
        cancellation of a lone caller interrupts its commit.

        Raises:
            StoreUnavailable: the message says whether the job may have been stored.
        """
        if self._was_alone and not self._is_flushing:
            return await self._submit_alone(job)
        future: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        self._pending.append((job, future))
        if not self._is_flushing:
            self._start()
        return await future

    async def submit_many(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Submit many jobs in chunks of 500. Each chunk is stored as a whole or not at all."""
        answers: list[Submitted] = []
        for start in range(0, len(jobs), _MOST):
            chunk = jobs[start : start + _MOST]
            answers += await self._submit(chunk)
        return answers

    async def _submit_alone(self, job: NewJob) -> Submitted:
        self._is_flushing = True
        try:
            (answer,) = await self._submit([job])
        except asyncio.CancelledError:
            self._on_commit([job])
            raise
        finally:
            self._is_flushing = False
            if self._pending:
                self._start()
        return answer

    def _start(self) -> None:
        self._is_flushing = True
        self._flushes.start(self._flush())

    async def _flush(self) -> None:
        try:
            while self._pending:
                taken = [self._pending.popleft() for _ in range(min(_MOST, len(self._pending)))]
                self._was_alone = len(taken) == 1
                # A job whose caller was cancelled before the flush is not submitted.
                await self._answer([(job, future) for job, future in taken if not future.done()])
        finally:
            self._is_flushing = False
            # After a cancellation no other code answers them.
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
        except Exception as error:  # noqa: BLE001 - every waiting caller must get the error
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
        self._on_commit([job for job, answer in zip(jobs, answers, strict=True) if answer.is_new])
        return answers
