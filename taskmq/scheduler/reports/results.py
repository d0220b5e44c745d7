"""Accepted results, stored in the app's state, where `Job.result` waits.

The store has them already. If the state does not answer, waiting callers get no answer there, but no result is lost.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore
from taskmq.contracts.stores import ResultRecord, ResultStore
from taskmq.errors import StateUnavailable
from taskmq.model.jobs.reports import Report
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.values.light_values import REFERENCE, read_reference
from taskmq.scheduler.partition import Flight
from taskmq.stored_jobs.new_jobs import name_of

_log = logging.getLogger("taskmq.scheduler")

_AT_A_TIME: Final = 100


class AcceptedEnd(msgspec.Struct, frozen=True):
    """A report that ended its job.

    Attributes:
        flight: the job in flight; None if it is not known here.
    """

    report: Report
    state: JobState
    flight: Flight | None


class AcceptedResults:
    """Writer of results into the state."""

    def __init__(self, app: TaskMQ, store: JobStore) -> None:
        self._app = app
        self._store = store
        self._results: ResultStore | None = app.sessions.current().stores.results
        self._has_trouble = False

    async def put(self, ends: Sequence[AcceptedEnd]) -> None:
        """Store the results whose tasks keep them. Returns when done, or when the state does not answer."""
        if self._results is None:
            return
        for start in range(0, len(ends), _AT_A_TIME):
            puts = [self._put(self._results, end) for end in ends[start : start + _AT_A_TIME]]
            try:
                await asyncio.gather(*puts)
                self._has_trouble = False
            except StateUnavailable as error:
                if not self._has_trouble:
                    _log.warning("state unavailable, results are only in the job store: %s", error)
                self._has_trouble = True
                return

    async def _put(self, results: ResultStore, end: AcceptedEnd) -> None:
        named = await self._find_name(end)
        if named is None:
            return
        name, task = named
        plan = self._app.tasks.plan_of(task)
        if plan is not None and plan.result is False:
            return
        await results.put(self._record(end, name, task), ttl=self._app.jobs.sent.result_ttl_of(task))

    async def _find_name(self, end: AcceptedEnd) -> tuple[str, str] | None:
        """Return the job's public id and its task; None if the job is unknown."""
        if end.flight is not None:
            return end.flight.name, end.flight.task
        record = await self._store.get(end.report.id)
        return None if record is None else (name_of(record), record.task)

    def _record(self, end: AcceptedEnd, name: str, task: str) -> ResultRecord:
        report = end.report
        content_type, value, blob = report.content_type, report.result, None
        if content_type == REFERENCE and (found := read_reference(value)) is not None:
            value, (content_type, blob) = b"", found
        finished = self._app.sessions.clock.now_ms() if report.started is None else report.started + report.ran
        error = report.error
        if end.state is not JobState.SUCCEEDED and error is None:
            error = ErrorRecord(type_name="JobCancelled", message=str(end.state), traceback="")
        return ResultRecord(
            job_id=name,
            task=task,
            state=end.state,
            attempt=report.attempt,
            content_type=content_type,
            value=value,
            error=None if end.state is JobState.SUCCEEDED else error,
            started=report.started,
            finished=finished,
            worker=report.worker,
            blob=blob,
        )
