"""Limits of an app with a job store and without a state: the scheduler decides, and this worker obeys.

A stored job has passed its limits when its invitation arrives, which says that the job has its permits. Under a
strict rate the invitation has an instant to wait for, and one after which the start would be one too many in its
period: then the job returns, and its scheduler dispatches it anew. Both are instants of the store's clock, compared
with the clock of this machine.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Any, Final

from taskmq.contracts.stores import ResultRecord
from taskmq.errors import UnsupportedFeature
from taskmq.model.clock import Clock
from taskmq.model.outcome import Dead, Interrupted, Outcome, Snoozed
from taskmq.options.limits import Concurrency, RateLimit
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit

_log = logging.getLogger("taskmq.worker")

_AGAIN: Final = timedelta(seconds=5)
# Longest wait in a slot (s). The instant of a job whose message was lost may be further ahead.
_LONGEST: Final = 5.0


class StoredStartsGuard:
    """Holds stored jobs until the instants of their starts, and refuses sent ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Tasks of jobs that waited, because the store did not decide their limits.
        self._warned: set[str] = set()

    def concerns_task(self, task: Task[..., Any]) -> bool:
        """See `Guard`."""
        return bool(task.limits)

    def concerns(self, attempt: Attempt) -> bool:
        task = attempt.task
        return bool(task.limits) and (attempt.envelope.store is None or _is_strict(task) or _has_places(task))

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        if attempt.cancelled is not None:
            return _NOTHING
        invitation = attempt.envelope.store
        if invitation is None:
            return Dead(
                "rejected",
                UnsupportedFeature(
                    f"job {attempt.job_id} of task {attempt.envelope.task} was sent, and its limits need a state, "
                    "which this worker does not have: submit it to the store, or set TaskMQ(..., "
                    "state='redis://...') or $TASKMQ_STATE, then replay it"
                ),
            )
        if (invitation.fence is None or invitation.leaves_limits) and _has_places(attempt.task):
            # Published by a scheduler that does not know the limit or has a state.
            self._warn(attempt)
            return Snoozed(_AGAIN)
        if not _is_strict(attempt.task):
            return _NOTHING
        if invitation.not_before is None or invitation.not_after is None:
            # Published by a scheduler that did not know the rate, or could not count the start.
            return Interrupted()
        wait = (invitation.not_before - self._clock.now_ms()) / 1000
        if wait > _LONGEST:
            return Interrupted()
        if wait > 0:
            await asyncio.sleep(wait)
        return _NOTHING if self._clock.now_ms() <= invitation.not_after else Interrupted()

    def _warn(self, attempt: Attempt) -> None:
        task = attempt.envelope.task
        if task not in self._warned:
            self._warned.add(task)
            _log.warning(
                "jobs of task %s wait: their scheduler did not take their concurrency limits. Give schedulers and "
                "workers the same state, or none, and the same code",
                task,
            )


def _is_strict(task: Task[..., Any]) -> bool:
    return any(isinstance(each.limit, RateLimit) and each.limit.strict for each in task.limits)


def _has_places(task: Task[..., Any]) -> bool:
    return any(isinstance(each.limit, Concurrency) for each in task.limits)


class _StartPermit:
    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - permits are called so
        return True


_NOTHING: Final = _StartPermit()
