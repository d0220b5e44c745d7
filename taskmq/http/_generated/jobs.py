# Generated from taskmq/http/aio/jobs.py by `python -m tests.house.blocking_client`: change that one.
"""Jobs: submitted, looked for, changed, and waited for."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from taskmq.api.job_requests import ActionBody, BulkBody, CloneBody, RetryBody, SubmitBody, UpstreamJob
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
    JobList,
    JobView,
    RefusedJob,
    SubmittedJob,
    SubmittedJobs,
)
from taskmq.api.values import PriorityLevel
from taskmq.http._generated.connection import HttpConnection, every
from taskmq.http.bodies import change_body, items_of, named_bodies, new_key, query_of_jobs, result_of
from taskmq.http.retries import JobWaits, seconds_of_duration
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.units import Duration
from taskmq.operations.bulks import BulkAction
from taskmq.stored_jobs.explain import Explanation

__all__ = ["JobCalls"]


class JobCalls:
    """Jobs of the server's store.

    Methods raise `JobNotFound` for a job that is not there or is another tenant's, and `JobConflict` where its state
    or version does not allow it.
    """

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def submit(
        self,
        task: str,
        /,
        *args: Any,
        at: datetime | None = None,
        delay: Duration | None = None,
        priority: PriorityLevel | None = None,
        queue: str | None = None,
        job_id: str | None = None,
        expires: Duration | datetime | None = None,
        description: str = "",
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, float | str] | None = None,
        node_labels: Mapping[str, str] | None = None,
        preemptible: bool | None = None,
        held: bool = False,
        depends_on: Sequence[str | UpstreamJob] = (),
        **kwargs: Any,
    ) -> SubmittedJob:
        """Submit a job; it is durable when this returns, and one job however often the request had to be sent.

        Args:
            task: the name of a task, or of a definition.
            at: when it is to run, with a time zone; or `delay` from now.
            priority: 0 (lowest) to 9, or high, medium or low.
            job_id: an id of one's own: the same again with the same content is the same job.
            expires: it does not start later than this.
            resources: what the job takes of the node that it is placed on, such as `{"cpu": 2, "memory": "16G"}`.
                Default: the task's.
            node_labels: labels that the node must have.
            preemptible: whether a run may be stopped for a pool that is owed its share. Default: the task's.
            held: it does not run until it is released.
            depends_on: ids of jobs that have to succeed before it runs; `UpstreamJob` for those that have to end so.

        Raises:
            UnknownTask: there is no task and no definition of that name.
            InvalidArguments, InvalidOption: nothing was kept.
            NotPermitted: the caller may not call the task.
            JobConflict: the id is that of a job with other content.
        """
        body = SubmitBody(
            job_type=task,
            job_id=job_id,
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
        )
        return self.keep(body)

    def keep(self, body: SubmitBody) -> SubmittedJob:
        """Submit the job that a body describes: `submit` for arguments that are called like its options."""
        # An id does what a key does, and may be longer than one.
        key = new_key() if body.job_id is None else None
        return self._connection.ask("submitJobs", SubmittedJob, body=body, key=key, repeats=True)

    def submit_many(self, jobs: Sequence[SubmitBody]) -> Sequence[SubmittedJob | RefusedJob]:
        """Submit up to 1,000 jobs, each of which is kept or refused for itself; the outcomes in their order."""
        connection = self._connection
        found = connection.ask("submitJobs", SubmittedJobs, body=named_bodies(jobs), repeats=True)
        return items_of(found, server=connection.address)

    def get(self, job_id: str, *, expand: Sequence[str] = ()) -> JobDetails:
        """A job, by the id that its submitter chose, or by the store's.

        Args:
            expand: what is fetched, too: of payload, result, logs, progress.
        """
        query = {"expand": ",".join(expand) or None}
        return self._connection.ask("getJob", JobDetails, path={"job_id": job_id}, query=query)

    def count(self, filter: str = "") -> JobCount:  # noqa: A002 - the parameter's name in the API
        """How many jobs fit a filter, exactly up to 10,000."""
        return self._connection.ask("countJobs", JobCount, query={"filter": filter})

    def counts(self, filters: Sequence[str], *, max_age: float = 0) -> Sequence[JobCountOf]:
        """How many jobs fit each of up to 20 filters, in their order.

        Args:
            max_age: so many seconds old the answer may be; then callers share one.
        """
        query = {"filter": list(filters), "max_age": max_age}
        return (self._connection.ask("countJobsOfFilters", JobCounts, query=query)).items

    def change(
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
        """Change a job that no worker has yet; what is not given stays.

        Args:
            version: that it has to have.
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
        return self._connection.ask("patchJob", ChangedJob, path=path, body=body, version=version)

    def cancel(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        """Cancel a job: `status` is `cancelled`, or `cancel_requested` where a worker has it."""
        path = {"job_id": job_id}
        query = {"note": note or None}
        return self._connection.ask("cancelJob", ChangedJob, path=path, query=query, version=version)

    def hold(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        """Have a job that waits not run until it is released."""
        return self._act("holdJob", job_id, version, note)

    def release(self, job_id: str, *, version: int | None = None, note: str = "") -> ChangedJob:
        """Let a held job run, at its time."""
        return self._act("releaseJob", job_id, version, note)

    def retry(
        self,
        job_id: str,
        *,
        version: int | None = None,
        mode: RetryMode | None = None,
        again: bool = False,
        note: str = "",
        new_id: str | None = None,
    ) -> ChangedJob:
        """Run a job now: one that waits at once; one that has ended again.

        Args:
            mode: of one that has ended: `resume`: it goes on, under its id, with its next attempt; `new`: another job
                repeats it. Default: `new` with a `new_id`; else it goes on where its submitter chose its id and it
                neither has succeeded nor was cancelled while it ran.
            again: also one that another job repeats already.
            new_id: of that other job.

        Raises:
            JobConflict: another job repeats it already; names that one.
        """
        path = {"job_id": job_id}
        body = RetryBody(mode=mode or (None if new_id is None else "new"), again=again, note=note)
        key = new_id or new_key()
        return self._connection.ask("retryJob", ChangedJob, path=path, body=body, version=version, key=key)

    def clone(
        self,
        job_id: str,
        *,
        new_id: str | None = None,
        at: datetime | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        priority: PriorityLevel | None = None,
    ) -> ChangedJob:
        """Submit another job of the same task, which is linked to this one.

        Args:
            args, kwargs: in place of all its arguments; default: the same call.
            priority: default: the same.
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
        return self._connection.ask("cloneJob", ChangedJob, path=path, body=body, key=key)

    def history(self, job_id: str) -> Sequence[HistoryView]:
        """What happened to a job beside the ordinary steps, the earliest first."""
        return (self._connection.ask("getJobHistory", HistoryList, path={"job_id": job_id})).items

    def attempts(self, job_id: str) -> Sequence[AttemptView]:
        """The attempts of a job that did not end it, the earliest first."""
        return (self._connection.ask("getJobAttempts", AttemptList, path={"job_id": job_id})).items

    def explain(self, job_id: str) -> Explanation:
        """What a job waits for."""
        return self._connection.ask("explainJob", Explanation, path={"job_id": job_id})

    def wait(self, job_id: str, *, timeout: Duration | None = None) -> JobDetails:
        """Wait until a job has ended, however it ends.

        Raises:
            ResultTimeout: it has not within `timeout`; it goes on.
        """
        waits = JobWaits(job_id, timeout)
        while True:
            found = self.get(job_id)
            if found.state.is_final:
                return found
            time.sleep(waits.following())

    def result(self, job_id: str, *, timeout: Duration | None = None) -> Any:
        """Wait for what a job's task returns.

        Raises:
            TaskFailed: it has failed.
            JobCancelled: it was cancelled, has expired, or was not to run.
            ResultTimeout: it has not ended within `timeout`; it goes on.
            ResultExpired, ResultDamaged: its result is not kept any more, or is not what was stored.
            UnsupportedFeature: its result is kept where the server does not reach it.
        """
        ended = self.wait(job_id, timeout=timeout)
        return result_of(self.get(ended.id, expand=["result"]))

    def act(
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
        """Do the same to many jobs that a filter finds, up to `limit` of them; go on with `next` as the `cursor`.

        Args:
            everything: all of them are meant, where there is no filter.
            dry_run: only say how many there are.
            at, delay, priority: what `change` makes different.
            mode: of a retry, see there.
            again: `retry` is of jobs that were retried before, too.
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
        return self._connection.ask("actOnJobs", BulkView, body=body)

    def page(
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
        """A page of the jobs that fit, the newest first; `next` is the cursor of the next one.

        Args:
            filter: such as `status:failed task:billing.*`.
            since, until: between which instants they are scheduled.
            limit: at most 200.
            expand: what is fetched, too: `progress`.
        """
        which = query_of_jobs(filter, status=status, job_type=job_type, since=since, until=until)
        query = {**which, "limit": limit, "cursor": cursor or "", "expand": ",".join(expand) or None}
        return self._connection.ask("listJobs", JobList, query=query)

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
    ) -> Iterator[JobView]:
        """All jobs that fit, the newest first; pages are fetched as they are needed. See `page`."""
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

    def _act(self, operation: str, job_id: str, version: int | None, note: str) -> ChangedJob:
        path = {"job_id": job_id}
        return self._connection.ask(operation, ChangedJob, path=path, body=ActionBody(note=note), version=version)
