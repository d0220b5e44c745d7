"""Preemption: returning stored jobs, so that other jobs get their slots.

    a scheduler asks -> a run in progress: asked, and stopped after its grace -> reported as interrupted
                        an attempt that waits for resources: returned immediately
                        a job that has not arrived, or waits for its slot: returned at its turn

The scheduler repeats the request until the job's report arrives, so a lost request does no harm. A job that runs here
under another token than requested is another dispatch, and continues.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from taskmq.model.commands import Preemption
from taskmq.model.envelope import Envelope
from taskmq.options.task_options import ExecutorKind
from taskmq.run.execution import Executor
from taskmq.worker.attempt import Attempt
from taskmq.worker.intake.slots import Slots
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.task_pool import WorkItem

_log = logging.getLogger("taskmq.worker")

RECALLED: Final = "recalled before it began"
"""Reason of a job that is returned before it started."""

# A job that has not arrived by then was delivered to another worker. The scheduler asks again every few seconds.
_REMEMBERED: Final = 60.0


class Preemptions:
    """Preemptions of one worker.

    Args:
        settle: returns an attempt that waited for resources.
        cancel: cancels the task of an attempt.

    Attributes:
        recalled: ids and tokens of jobs to return without a run, each with its expiry.
    """

    def __init__(
        self,
        executors: Mapping[ExecutorKind, Executor],
        slots: Slots,
        stats: WorkerStats,
        *,
        settle: Callable[[Attempt], WorkItem],
        cancel: Callable[[Attempt], None],
    ) -> None:
        self._executors = executors
        self._slots = slots
        self._stats = stats
        self._settle = settle
        self._cancel = cancel
        self.recalled: dict[tuple[str, int], float] = {}

    def is_recalled(self, envelope: Envelope) -> bool:
        """Return whether a job must be returned without a run."""
        if not self.recalled or envelope.store is None:
            return False
        # While any is remembered, all stored jobs skip the fast path.
        self._forget(now=self._slots.monotonic())
        return self.recalled.pop((envelope.store.id, envelope.store.token), None) is not None

    def ask(self, jobs: Sequence[Preemption]) -> None:
        """Return those of these jobs that are here, or that arrive later."""
        now = self._slots.monotonic()
        self._forget(now=now)
        running, waiting = _by_key(self._stats.running), _by_key(self._slots.resources.attempts())
        for one in jobs:
            key = (one.job, one.token)
            if (attempt := running.get(key)) is not None:
                if one.reason and attempt.preempted is None and attempt.cancelled is None:
                    self._stop(attempt, one)
            elif (attempt := waiting.get(key)) is not None:
                self._slots.withdraw(attempt.job_id, self._withdrawn)
            else:
                # Re-inserted at the end: the first entry is the first to expire.
                self.recalled.pop(key, None)
                self.recalled[key] = now + _REMEMBERED

    def _forget(self, *, now: float) -> None:
        while self.recalled and self.recalled[first := next(iter(self.recalled))] <= now:
            del self.recalled[first]

    def _withdrawn(self, attempt: Attempt) -> WorkItem:
        attempt.preempted = RECALLED
        return self._settle(attempt)

    def _stop(self, attempt: Attempt, asked: Preemption) -> None:
        if attempt.plan.ack == "early":
            # It can never run again.
            return
        attempt.preempted = asked.reason
        kind, loop = attempt.plan.executor, asyncio.get_running_loop()
        if attempt.execution is not None:
            self._executors[kind].preempt(attempt.execution, asked.reason)
        if kind == "thread" and attempt.execution is not None:
            loop.call_later(asked.grace, self._complain, attempt)
            return
        if kind == "async" or attempt.execution is None:
            self._cancel(attempt)
        loop.call_later(asked.grace, partial(self._cancel_late, attempt))

    def _cancel_late(self, attempt: Attempt) -> None:
        if attempt in self._stats.running:
            self._cancel(attempt)

    def _complain(self, attempt: Attempt) -> None:
        if attempt in self._stats.running:
            # Returning its job to another worker would run the job twice.
            _log.warning(
                "job %s of task %s was not preempted (%s): a thread cannot be stopped, so it runs to its end; "
                "check context.preempted in the task, or use executor='process'",
                attempt.job_id,
                attempt.envelope.task,
                attempt.preempted,
            )


def _by_key(attempts: Iterable[Attempt]) -> dict[tuple[str, int], Attempt]:
    """Return the attempts of stored jobs by ids and tokens."""
    return {(store.id, store.token): each for each in attempts if (store := each.envelope.store) is not None}
