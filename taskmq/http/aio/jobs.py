"""Jobs: submit, search, change, and wait for results."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from taskmq.api.job_requests import ActionBody, BulkBody, CloneBody, JobSignalBody, RetryBody, SubmitBody, UpstreamJob
from taskmq.api.jobs import (
    AttemptList,
    AttemptView,
    BulkView,
    ChangedJob,
    HistoryList,
    HistoryView,
    JobCount,
    JobCountOf,
    JobCounts,
    JobDetails,
    JobHistogram,
    JobList,
    JobView,
    RefusedJob,
    SignalledJob,
    SubmittedJob,
    SubmittedJobs,
)
from taskmq.api.values import PriorityLevel
from taskmq.http.aio.connection import AsyncCalls, every
from taskmq.http.bodies import (
    change_body,
    items_of,
    named_bodies,
    new_key,
    place_terms,
    query_of_jobs,
    result_of,
    retry_terms,
)
from taskmq.http.retries import JobWaits, seconds_of_duration
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.nodes import PlaceOptions
from taskmq.model.units import Duration
from taskmq.operations.bulks import BulkAction
from taskmq.options.task_options import Guarantee, RetryOptions
from taskmq.stored_jobs.explanations import Explanation


class AsyncJobCalls(AsyncCalls):
    """Jobs of the server's store.

    Methods raise `JobNotFound` for a job that does not exist or belongs to another tenant, and `JobConflict` if its
    state or version does not allow the action.
    """

    async def submit(
        self,
        task: str,
        /,
        *args: Any,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: PriorityLevel | None = None,
        queue: str | None = None,
        job_id: str | None = None,
        order_key: str | None = None,
        idempotency_key: str | None = None,
        meta: Mapping[str, str] | None = None,
        expires: Duration | datetime | None = None,
        description: str = "",
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, float | str] | None = None,
        node_labels: Mapping[str, str] | None = None,
        preemptible: bool | None = None,
        held: bool = False,
        depends_on: Sequence[str | UpstreamJob] = (),
        timeout: Duration | None = None,
        max_attempts: int | None = None,
        retry: RetryOptions | None = None,
        guarantee: Guarantee | None = None,
        owner: str = "",
        place: PlaceOptions | None = None,
        **kwargs: Any,
    ) -> SubmittedJob:
        """Submit a job. It is durable when this returns, and created once even if the request is repeated.

        Args:
            task: the name of a task or definition.
            at: when to run, with a time zone; or `delay` from now.
            priority: 0 (lowest) to 9, or high, medium or low.
            job_id: a chosen id. Submitting the same id and content again returns the existing job.
            order_key, idempotency_key: the key itself. Default: the task's key for the arguments.
            meta: strings that the task reads as `ctx.meta`.
            expires: the time after which the job no longer starts.
            resources: the amounts it uses on its node, such as `{"cpu": 2, "memory": "16G"}`. Default: the task's.
            node_labels: labels the node must have.
            preemptible: whether a run may be stopped in favour of a pool below its share. Default: the task's.
            held: hold the job until it is released.
            depends_on: ids of jobs that must succeed first, or `UpstreamJob` for other conditions.
            timeout: the maximum duration of a run, at most the task's.
            max_attempts: the maximum of runs, including the first one.
            retry: the pace of retries, such as `{"base": "10s", "backoff": "constant"}`.
            guarantee: `at_most_once` runs the job once or never.
            owner: the owner, which can only be the caller.
            place: the choice of the node, such as `{"prefers": {"disk": "ssd"}, "patience": 30}`.

        Raises:
            UnknownTask: no task or definition has the name.
            InvalidArguments, InvalidOption: nothing was stored.
            NotPermitted: the caller may not call the task.
            JobConflict: a job with other content has the id.
        """
        body = SubmitBody(
            job_type=task,
            job_id=job_id,
            order_key=order_key,
            idempotency_key=idempotency_key,
            meta=dict(meta or {}),
            schedule_time=at,
            delay=seconds_of_duration(delay, "delay"),
            priority=priority,
            kwargs=kwargs or None,
            args=list(args) or None,
            queue=queue,
            expires_at=expires if isinstance(expires, datetime) else None,
            expires_in=None if isinstance(expires, datetime) else seconds_of_duration(expires, "expires"),
            description=description,
            labels=dict(labels or {}),
            resources=dict(resources or {}),
            node_labels=dict(node_labels or {}),
            preemptible=preemptible,
            held=held,
            depends_on=list(depends_on),
            timeout=seconds_of_duration(timeout, "timeout"),
            max_attempts=max_attempts,
            retry=retry_terms(retry),
            guarantee=guarantee,
            owner=owner,
            place=place_terms(place),
        )
        return await self.submit_body(body)

    async def submit_body(self, body: SubmitBody) -> SubmittedJob:
        """Submit a job described by a body, for tasks with arguments named like the options of `submit`."""
        # An id has the same effect as a key, and may be longer.
        key = new_key() if body.job_id is None else None
        return await self._connection.ask("submitJobs", SubmittedJob, body=body, key=key, repeats=True)

    async def submit_many(self, jobs: Sequence[SubmitBody]) -> Sequence[SubmittedJob | RefusedJob]:
        """Submit up to 1,000 jobs, each accepted or refused separately. Returns the outcomes in order."""
        connection = self._connection
        found = await connection.ask("submitJobs", SubmittedJobs, body=named_bodies(jobs), repeats=True)
        return items_of(found, server=connection.address)

    async def get(self, job_id: str, *, expand: Sequence[str] = ()) -> JobDetails:
        """Return a job by its submitter's id or the store's id.

        Args:
            expand: parts to include: payload, result, logs, progress, options.
        """
        query = {"expand": ",".join(expand) or None}
        return await self._connection.ask("getJob", JobDetails, path={"job_id": job_id}, query=query)

    async def count(self, filter: str = "") -> JobCount:  # noqa: A002 - the parameter's name in the API
        """Count the jobs that match a filter, exactly up to 10,000."""
        return await self._connection.ask("countJobs", JobCount, query={"filter": filter})

    async def histogram(self, filter: str = "", *, bars: int = 30) -> JobHistogram:  # noqa: A002 - the API's name
        """Count the jobs that match a filter, by state and by the time of their creation.

        The range is that of `created` in the filter, without one the last 24 hours. The newest
        1,000 live and 1,000 ended jobs of each interval are examined; `is_exact` says whether these were all.
        """
        return await self._connection.ask("getJobHistogram", JobHistogram, query={"filter": filter, "bars": bars})

    async def counts(self, filters: Sequence[str], *, max_age: float = 0) -> Sequence[JobCountOf]:
        """Count the jobs of each of up to 20 filters, in order.

        Args:
            max_age: the maximum age of the result in seconds. Callers share a cached result.
        """
        query = {"filter": list(filters), "max_age": max_age}
        return (await self._connection.ask("countJobsOfFilters", JobCounts, query=query)).items

    async def change(
        self,
        job_id: str,
        *,
        version: int | None = None,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: PriorityLevel | None = None,
        queue: str | None = None,
        expires: datetime | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        note: str = "",
    ) -> ChangedJob:
        """Change a job that no worker has received. Omitted fields stay unchanged.

        Args:
            version: the version it must have.
        """
        body = change_body(
            at=at,
            delay=delay,
            priority=priority,
            queue=queue,
            expires=expires,
            args=args,
            kwargs=kwargs,
            note=note,
        )
        path = {"job_id": job_id}
        return await self._connection.ask("patchJob", ChangedJob, path=path, body=body, version=version)

    async def cancel(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        """Cancel a job. `status` is `cancelled`, or `cancel_requested` if a worker has it."""
        path = {"job_id": job_id}
        query = {"note": note or None}
        return await self._connection.ask("cancelJob", ChangedJob, path=path, query=query, version=version)

    async def hold(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        """Hold a waiting job until it is released."""
        return await self._act("holdJob", job_id, version, note)

    async def release(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        """Release a held job. It runs at its scheduled time."""
        return await self._act("releaseJob", job_id, version, note)

    async def signal(self, job_id: str, body: JobSignalBody) -> SignalledJob:
        """Send a signal to a job. A call of its task that waits for it returns the value.

        Raises:
            SavedValuesFull: the job has no room for it.
        """
        repeats = body.signal_id is not None
        return await self._connection.ask(
            "signalJob", SignalledJob, path={"job_id": job_id}, body=body, repeats=repeats
        )

    async def retry(
        self,
        job_id: str,
        *,
        version: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        note: str = "",
        new_id: str | None = None,
    ) -> ChangedJob:
        """Run a waiting job now, or run an ended job again.

        Args:
            mode: for an ended job: `resume` continues with the next attempt under the same id; `new` creates a new
                job. Default: `new` with a `new_id`; otherwise `resume` if the submitter chose the id and the job
                neither succeeded nor was cancelled while running.
            again: retry even if another job already repeats it.
            new_id: the id of the new job.

        Raises:
            JobConflict: another job, named in the error, already repeats it.
        """
        path = {"job_id": job_id}
        body = RetryBody(mode=mode or (None if new_id is None else "new"), again=again, note=note)
        key = new_id or new_key()
        return await self._connection.ask("retryJob", ChangedJob, path=path, body=body, version=version, key=key)

    async def clone(
        self,
        job_id: str,
        *,
        new_id: str | None = None,
        at: datetime | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        priority: PriorityLevel | None = None,
    ) -> ChangedJob:
        """Submit a copy of a job, linked to the original.

        Args:
            args, kwargs: new arguments, which replace all old ones. Default: the job's.
            priority: the copy's priority. Default: the job's.
        """
        body = CloneBody(
            job_id=new_id,
            schedule_time=at,
            args=None if args is None else list(args),
            kwargs=None if kwargs is None else dict(kwargs),
            priority=priority,
        )
        key = new_key() if new_id is None else None
        path = {"job_id": job_id}
        return await self._connection.ask("cloneJob", ChangedJob, path=path, body=body, key=key)

    async def history(self, job_id: str) -> Sequence[HistoryView]:
        """Return the unusual events of a job, oldest first."""
        return (await self._connection.ask("getJobHistory", HistoryList, path={"job_id": job_id})).items

    async def attempts(self, job_id: str) -> Sequence[AttemptView]:
        """Return the attempts of a job, oldest first."""
        return (await self._connection.ask("getJobAttempts", AttemptList, path={"job_id": job_id})).items

    async def explain(self, job_id: str) -> Explanation:
        """Return what a job waits for."""
        return await self._connection.ask("explainJob", Explanation, path={"job_id": job_id})

    async def wait(self, job_id: str, *, timeout: Duration | None = None) -> JobDetails:
        """Wait until a job has ended in any state, and return it.

        Raises:
            ResultTimeout: it has not ended within `timeout`; it continues.
        """
        waits = JobWaits(job_id, timeout)
        while True:
            found = await self.get(job_id)
            if found.state.is_final:
                return found
            await asyncio.sleep(waits.next_wait())

    async def result(self, job_id: str, *, timeout: Duration | None = None) -> Any:
        """Wait for the return value of a job's task.

        Raises:
            TaskFailed: the job failed.
            JobCancelled: the job was cancelled, expired, or skipped.
            ResultTimeout: it has not ended within `timeout`; it continues.
            ResultExpired, ResultDamaged: the result is no longer stored, or is damaged.
            UnsupportedFeature: the result is stored where the server cannot read it.
        """
        ended = await self.wait(job_id, timeout=timeout)
        return result_of(await self.get(ended.id, expand=["result"]))

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
        priority: PriorityLevel | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        note: str = "",
    ) -> BulkView:
        """Apply an action to up to `limit` jobs that match a filter; continue with `next` as the `cursor`.

        Args:
            everything: match all jobs, instead of a filter.
            dry_run: only count the matching jobs.
            at, delay, priority: the new values, for `change`.
            mode: how to retry, see `retry`.
            again: also `retry` jobs that were already retried.
        """
        body = BulkBody(
            action=action,
            filter=filter,
            everything=everything,
            dry_run=dry_run,
            limit=limit,
            cursor=cursor,
            schedule_time=at,
            delay=seconds_of_duration(delay, "delay"),
            priority=priority,
            mode=mode,
            again=again,
            note=note,
        )
        return await self._connection.ask("actOnJobs", BulkView, body=body)

    async def page(
        self,
        filter: str = "",  # noqa: A002 - the parameter's name in the API
        *,
        status: str | None = None,
        job_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
        expand: Sequence[str] = (),
    ) -> JobList:
        """Return a page of matching jobs, newest first; `next` is the cursor of the next page.

        Args:
            filter: such as `status:failed task:billing.*`.
            since, until: only jobs scheduled in this period.
            limit: at most 200.
            expand: parts to include: `progress`.
        """
        which = query_of_jobs(filter, status=status, job_type=job_type, since=since, until=until)
        query = {**which, "limit": limit, "cursor": cursor or "", "expand": ",".join(expand) or None}
        return await self._connection.ask("listJobs", JobList, query=query)

    def list(
        self,
        filter: str = "",  # noqa: A002 - the parameter's name in the API
        *,
        status: str | None = None,
        job_type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = 200,
        expand: Sequence[str] = (),
    ) -> AsyncIterator[JobView]:
        """Iterate over matching jobs, newest first; pages are loaded when needed. See `page`."""
        return every(
            lambda cursor: self.page(
                filter,
                status=status,
                job_type=job_type,
                since=since,
                until=until,
                limit=page_size,
                cursor=cursor,
                expand=expand,
            )
        )

    async def _act(self, operation: str, job_id: str, version: int | None, note: str) -> ChangedJob:
        path = {"job_id": job_id}
        return await self._connection.ask(
            operation, ChangedJob, path=path, body=ActionBody(note=note), version=version
        )
