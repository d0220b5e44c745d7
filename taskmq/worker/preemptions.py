"""Giving jobs of the store back, so that others have their slots.

    a scheduler asks -> a run that goes on: asked, and stopped after its grace -> reported as interrupted
                        one that waits here for resources: given back at once
                        one that has not come yet, or waits for its slot: given back when its turn comes

The scheduler asks again until the job's report has come: what was not heard is heard then. A job that is asked for
under another token than it has here is another dispatch of it, and goes on.
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

__all__ = ["RECALLED", "Preemptions"]

_log = logging.getLogger("taskmq.worker")

RECALLED: Final = "recalled before it began"
"""Why a job that has not begun goes back."""

# What has not come by then was given to another worker. The scheduler asks again every few seconds.
_REMEMBERED: Final = 60.0


class Preemptions:
    """Those of one worker.

    Args:
        settle: gives back an attempt that has waited for resources.
        cancel: cancels what carries an attempt out.

    Attributes:
        recalled: jobs by ids and tokens that go back without a run, and until when that is remembered.
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
        """Whether a job is to go back without a run."""
        if not self.recalled or envelope.store is None:
            return False
        # As long as any is remembered, all jobs of the store take the long way.
        self._forget(now=self._slots.monotonic())
        return self.recalled.pop((envelope.store.id, envelope.store.token), None) is not None

    def ask(self, jobs: Sequence[Preemption]) -> None:
        """Give back those of these jobs that are here, or come."""
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
                # Behind the others: the first in line is the first to be forgotten.
                self.recalled.pop(key, None)
                self.recalled[key] = now + _REMEMBERED

    def _forget(self, *, now: float) -> None:
        while self.recalled and self.recalled[first := next(iter(self.recalled))] <= now:
            del self.recalled[first]

    def _withdrawn(self, attempt: Attempt) -> WorkItem:
        attempt.preempted = RECALLED
        return self._settle(attempt)

    def _stop(self, attempt: Attempt, asked: Preemption) -> None:
        if attempt.task.plan.ack == "early":
            # It can never be run again.
            return
        attempt.preempted = asked.reason
        kind, loop = attempt.task.plan.executor, asyncio.get_running_loop()
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
            # To give its job to another worker beside it would be to run the job twice.
            _log.warning(
                "job %s of task %s was to give way (%s): a thread cannot be stopped, so it goes on to its end; have "
                "it look at context.preempted, or use executor='process'",
                attempt.job_id,
                attempt.envelope.task,
                attempt.preempted,
            )


def _by_key(attempts: Iterable[Attempt]) -> dict[tuple[str, int], Attempt]:
    """Those of jobs of the store, by ids and tokens."""
    return {(store.id, store.token): each for each in attempts if (store := each.envelope.store) is not None}
