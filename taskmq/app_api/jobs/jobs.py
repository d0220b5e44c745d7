"""Jobs of the store."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

import msgspec
from msgspec.structs import replace

from taskmq.api.job_requests import JobSignalBody, SubmitBody
from taskmq.api.jobs import (
    AttemptView,
    BulkView,
    ChangedJob,
    HistogramBar,
    HistoryView,
    JobCount,
    JobDetails,
    JobHistogram,
    JobList,
    JobView,
    RefusalView,
    SignalledJob,
    SubmittedJob,
)
from taskmq.api.problems import problem_of
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.jobs.details import expand_job
from taskmq.app_api.jobs.orders import changed_view, order_of, submitted_job
from taskmq.app_api.jobs.views import attempt_view, history_view, job_view, progress_view
from taskmq.app_api.views import render_all
from taskmq.contracts.jobs import JobRecord
from taskmq.errors import TaskMQError
from taskmq.model.jobs.bulks import BulkAction, narrow_filter
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import DAY_MS, Duration, instant_text
from taskmq.operations.bulks import BulkChange, act_on_page, check_change
from taskmq.operations.jobs import versions_of_attempts
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.stored_jobs.explanations import Explanation
from taskmq.stored_jobs.job_changes import ChangeOptions

_CAP: Final = 100_000
_COUNTED: Final = 10_000
_MOST_REFUSALS: Final = 100


class AppJobs(AppCalls):
    """The jobs that the caller may see, and actions on them.

    Methods raise `JobNotFound` for a job that does not exist or belongs to another tenant, `JobConflict` if its state
    or version does not allow the action, and `NotPermitted` if the caller may not call its task.
    """

    async def submit_body(self, body: SubmitBody) -> SubmittedJob:
        """Submit the job that a body describes."""
        return submitted_job(await self._jobs.submit(order_of(body)))

    async def get(self, job_id: str, *, expand: Sequence[str] = ()) -> JobDetails:
        record = await self._jobs.get(job_id)
        view = msgspec.structs.asdict(job_view(record, self._jobs.name_of(record)))
        return msgspec.convert(view | await expand_job(self._jobs, record, expand), JobDetails, from_attributes=True)

    async def cancel(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        after = await self._jobs.cancel(job_id, version=version, note=note)
        return changed_view(self._jobs, "cancelled" if after.state.is_final else "cancel_requested", after)

    async def count(self, filter: str = "") -> JobCount:  # noqa: A002 - the parameter's name in the API
        count = await self._jobs.count(await self._jobs.filter(filter), cap=_COUNTED)
        return JobCount(min(count, _COUNTED), count <= _COUNTED)

    async def histogram(self, filter: str = "", *, bars: int = 30) -> JobHistogram:  # noqa: A002 - the API's name
        which = await self._jobs.filter(filter)
        now = await self._app.sessions.store().now_ms()
        until = min(which.submitted_before or now + 1, now + 1)
        since = until - DAY_MS if which.submitted_from is None else which.submitted_from
        width = max(-((since - until) // bars), 1)
        items: list[HistogramBar] = []
        for at in range(since, until, width):
            part = replace(which, submitted_from=at, submitted_before=min(at + width, until))
            found = await self._jobs.count_states(part)
            items.append(HistogramBar(instant_text(at), found.counts, found.is_exact))
        return JobHistogram(instant_text(since), instant_text(until), width / 1000, items)

    async def page(
        self,
        filter: str = "",  # noqa: A002 - the parameter's name in the API
        *,
        limit: int = 50,
        cursor: str | None = None,
        expand: Sequence[str] = (),
    ) -> JobList:
        """Return a page of matching jobs, newest first; `next` is the cursor of the next page."""
        page = await self._jobs.list(await self._jobs.filter(filter), after=cursor or None, limit=limit)
        progress = await self._jobs.progress(page.jobs) if "progress" in expand else {}

        def view(record: JobRecord) -> JobView:
            shown, found = job_view(record, self._jobs.name_of(record)), progress.get(record.id)
            return shown if found is None else replace(shown, progress=progress_view(found))

        return JobList(items=render_all(view, page.jobs), next=page.after, is_bounded=page.is_bounded)

    async def change(
        self, job_id: str, *, version: int | None = None, note: str = "", **changes: Unpack[ChangeOptions]
    ) -> ChangedJob:
        return changed_view(
            self._jobs, "updated", await self._jobs.change(job_id, version=version, note=note, **changes)
        )

    async def hold(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        return changed_view(self._jobs, "held", await self._jobs.hold(job_id, version=version, note=note))

    async def release(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        return changed_view(self._jobs, "released", await self._jobs.release(job_id, version=version, note=note))

    async def signal(self, job_id: str, body: JobSignalBody) -> SignalledJob:
        """Send a signal to a job. A call of its task that waits for it returns the value.

        Raises:
            InvalidArguments: the value does not fit the form of the call that waits for the signal.
            SavedValuesFull: the job has no room for it.
        """
        record = await self._jobs.get(job_id)
        sent = await self._jobs.signal(record, body.signal, body.value, signal_id=body.signal_id)
        return SignalledJob(job_id=self._jobs.name_of(record), id=record.id, signal=body.signal, signal_id=sent)

    async def retry(
        self,
        job_id: str,
        *,
        version: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        note: str = "",
    ) -> ChangedJob:
        """Run a waiting job now, or run an ended job again.

        Args:
            mode: for an ended job: `resume` continues with the next attempt under the same id; `new` creates a new
                job. Default: `resume` if the submitter chose the id and the job neither succeeded nor was cancelled
                while running.
            again: retry even if another job already repeats it.
        """
        after = await self._jobs.retry(job_id, version=version, mode=mode, again=again, note=note)
        return changed_view(self._jobs, "retried", after)

    async def clone(
        self,
        job_id: str,
        *,
        new_id: str | None = None,
        at: datetime | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        priority: int | None = None,
    ) -> ChangedJob:
        made = await self._jobs.clone(job_id, new_id=new_id, at=at, args=args, kwargs=kwargs, priority=priority)
        return changed_view(self._jobs, "cloned", made)

    async def history(self, job_id: str) -> Sequence[HistoryView]:
        """List the unusual events of a job, oldest first."""
        return render_all(history_view, await self._jobs.history(job_id))

    async def attempts(self, job_id: str) -> Sequence[AttemptView]:
        """List the attempts of a job, oldest first."""
        found = await self._jobs.attempts(job_id)
        return list(map(attempt_view, found, await versions_of_attempts(self._app, found)))

    async def explain(self, job_id: str) -> Explanation:
        """List the reasons why a job waits, most important first; none for an ended job."""
        return await self._jobs.explain(job_id)

    async def act(
        self,
        action: BulkAction,
        filter: str = "",  # noqa: A002 - the parameter's name in the API
        *,
        everything: bool = False,
        dry_run: bool = False,
        limit: int = 200,
        cursor: str | None = None,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        note: str = "",
    ) -> BulkView:
        """Apply an action to up to `limit` jobs that match a filter; continue with `next` as the `cursor`.

        Args:
            everything: match all jobs, instead of a filter; the server and the command line require it.
            dry_run: only count the matching jobs, up to 100,000.
            at, delay, priority: the new values, for `change`.
            mode: how to retry.
            again: also `retry` jobs that were already retried.

        Raises:
            InvalidFilter: the filter is malformed.
            InvalidOption: see `check_change`.
        """
        del everything
        change = BulkChange(at, delay, priority, mode, again)
        check_change(action, change)
        which = await self._jobs.filter(filter)
        if dry_run:
            count = await self._jobs.count(narrow_filter(which, action, again=again), cap=_CAP)
            return BulkView(dry_run=True, matched=min(count, _CAP), done=0, refused=0, refusals=[], next=None)
        said = {"filter": filter, "cursor": cursor}
        await self._caller.note_action(self._app, f"jobs.{action}", subject="", after=said, note=note)
        page = await act_on_page(
            # The audit log has the request; each job's history has the action.
            TenantJobs(self._app, self._caller.tenant, by=self._caller.name, allows=self._caller.allows),
            action,
            which,
            change=change,
            after=cursor,
            limit=limit,
            note=note,
        )
        return BulkView(
            dry_run=False,
            matched=len(page.done) + len(page.refused),
            done=len(page.done),
            refused=len(page.refused),
            refusals=[self._refusal(*refusal) for refusal in page.refused[:_MOST_REFUSALS]],
            next=page.after,
        )

    def _refusal(self, record: JobRecord, error: TaskMQError) -> RefusalView:
        told = problem_of(error)
        return RefusalView(job_id=self._jobs.name_of(record), code=told.code, detail=told.detail)

    @property
    def _jobs(self) -> TenantJobs:
        caller = self._caller
        return TenantJobs(
            self._app, caller.tenant, by=caller.actor(), allows=caller.allows, is_at_app=caller.is_at_app
        )
