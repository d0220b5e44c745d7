"""Limit of concurrent occurrences of one schedule, across all workers.

Beat records each occurrence of a limited schedule in the schedule's record, and decides with it about the next ones.
This guard records there that occurrences started, still run, and ended:

    waits -- enter, with room --> runs -- leave, has ended --------> gone from the record
      ^  +-- enter, no room ---> (comes again)       its worker is silent for a lease: gone as well
      +----------- leave, comes again ----------+
"""

import logging
import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

from taskmq.app import TaskMQ
from taskmq.contracts.stores import ResultRecord, ScheduleStore
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.errors import StateUnavailable
from taskmq.model.keys import schedule_record_key
from taskmq.model.outcome import Interrupted, Outcome, Parked, Retried, Snoozed
from taskmq.run.facts import SCHEDULE_LIMIT, SCHEDULE_NAME
from taskmq.schedules.record import PENDING_MS, ActiveRun, ScheduleRecord
from taskmq.schedules.record_access import change_record
from taskmq.tasks.task import Task
from taskmq.worker.attempt import Attempt, Permit

_log = logging.getLogger("taskmq.worker")

_LEASE: Final = 30.0
_AGAIN: Final = (0.5, 2.0)

_Change = Callable[[ScheduleRecord, str, int], bool]


class OccurrenceGuard:
    """Holds an occurrence back while its schedule's limit is reached.

    Limited occurrences wait while the state is down.
    """

    def __init__(self, app: TaskMQ, schedules: ScheduleStore) -> None:
        self._app = app
        self._store = schedules
        self._held: set[_OccurrencePermit] = set()
        self._keeper = LeaseKeeper("permits of running occurrences", seconds=_LEASE, renew=self._renew)

    def concerns_task(self, task: Task[..., Any]) -> bool:  # noqa: ARG002 - beat gives each occurrence a key
        """See `Guard`."""
        return False

    def concerns(self, attempt: Attempt) -> bool:
        """Return whether the job is an occurrence of a schedule with a limit."""
        return attempt.envelope.meta is not None and SCHEDULE_LIMIT in attempt.envelope.meta

    async def acquire(self, attempt: Attempt) -> Permit | Outcome:
        meta = attempt.envelope.meta or {}
        permit = _OccurrencePermit(self, attempt.job_id, meta.get(SCHEDULE_NAME, ""))
        # A cancelled occurrence does not run, and must release its permit all the same.
        if attempt.cancelled is None:
            limit = int(meta[SCHEDULE_LIMIT]) if meta[SCHEDULE_LIMIT].isdecimal() else 1
            if not await self._change(permit, partial(_begin, limit=limit)):
                return Snoozed(timedelta(seconds=random.uniform(*_AGAIN)))
            self._held.add(permit)
            self._keeper.watch()
        return permit

    async def release(self, permit: "_OccurrencePermit", outcome: Outcome) -> None:
        """Record the end of the run."""
        comes_again = isinstance(outcome, Retried | Snoozed | Interrupted | Parked)
        permit.is_ending = True
        try:
            has_buffered = await self._change(permit, _wait_again if comes_again else _end)
        except StateUnavailable:
            # The call is repeated, and the permit is held meanwhile.
            permit.is_ending = False
            raise
        self._held.discard(permit)
        if has_buffered and not comes_again:
            await self._store.tell(self._app.name, [permit.schedule])

    async def _change(self, permit: "_OccurrencePermit", change: "_Change") -> bool:
        now = self._app.sessions.clock.now_ms()
        name = schedule_record_key(self._app.name, permit.schedule)
        return await change_record(self._store, name, lambda record: change(record, permit.job_id, now))

    async def _renew(self) -> bool:
        for permit in tuple(self._held):
            await self._change(permit, partial(_renew, permit=permit))
        return bool(self._held)


class _OccurrencePermit:
    """The permit of one run in its schedule's limit."""

    __slots__ = ("_guard", "is_ending", "job_id", "schedule")

    def __init__(self, guard: OccurrenceGuard, job_id: str, schedule: str) -> None:
        self._guard = guard
        self.job_id = job_id
        self.schedule = schedule
        self.is_ending = False

    async def release(self, outcome: Outcome, record: ResultRecord | None) -> bool:  # noqa: ARG002 - permits are called so
        await self._guard.release(self, outcome)
        return True


def _begin(record: ScheduleRecord, job_id: str, now: int, *, limit: int) -> bool:
    others = [run for run in record.live(now) if run.job_id != job_id]
    if sum(run.is_running for run in others) >= limit:
        return False
    record.active = [*others, ActiveRun(job_id, now + round(_LEASE * 1000), is_running=True)]
    return True


def _renew(record: ScheduleRecord, job_id: str, now: int, *, permit: _OccurrencePermit) -> bool:
    if permit.is_ending:
        # An occurrence that was removed stays removed.
        return False
    others = [run for run in record.active if run.job_id != job_id]
    record.active = [*others, ActiveRun(job_id, now + round(_LEASE * 1000), is_running=True)]
    return True


def _wait_again(record: ScheduleRecord, job_id: str, now: int) -> bool:
    others = [run for run in record.active if run.job_id != job_id]
    record.active = [*others, ActiveRun(job_id, now + PENDING_MS)]
    return bool(record.buffered)


def _end(record: ScheduleRecord, job_id: str, now: int) -> bool:
    del now
    record.active = [run for run in record.active if run.job_id != job_id]
    return bool(record.buffered)
