"""Jobs and the results of requests that change them."""

from typing import Any

import msgspec

from taskmq.api.job_requests import PlaceTerms, RetryTerms
from taskmq.api.problems import ProblemDetails
from taskmq.api.values import ListPage
from taskmq.model.jobs.bulks import BulkAction, BulkState
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.filters import Via
from taskmq.model.states import JobState
from taskmq.options.task_options import Guarantee


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a job's last attempt, or the reason it was cancelled."""

    type: str
    message: str
    traceback: str = ""


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """The last progress report of a job's task.

    Attributes:
        done, total: units of work, as the task counts them. `total` is None if unknown.
        attempt: the attempt that reported.
        state: `running`, or the state after that attempt.
    """

    done: float
    total: float | None
    note: str
    attempt: int
    updated_at: str | None
    state: JobState


class JobOptionsView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options a job was submitted with; an absent one is its task's, or has no effect.

    Attributes:
        timeout: the maximum duration of a run, in seconds.
        max_attempts: the maximum of runs, including the first one.
        retry: the pace of retries; `base` and `cap` in seconds.
        resources: the amounts it uses on its node, by name.
        preemptible: whether a run may be stopped in favour of a pool below its share.
    """

    timeout: float | None = None
    max_attempts: int | None = None
    retry: RetryTerms | None = None
    guarantee: Guarantee | None = None
    resources: dict[str, float] = {}
    place: PlaceTerms | None = None
    preemptible: bool | None = None


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the API returns it.

    Attributes:
        job_id: the submitter's id, or the store's id if the submitter chose none.
        id: the store's id.
        status: queued, running, completed, failed or cancelled.
        state: the exact state: waiting, held, scheduled, queued, dispatched, running, retrying, succeeded, failed,
            cancelled, expired, skipped, upstream_failed.
        job_type: the task's name; `task` is an alias.
        priority: 0 (lowest) to 9.
        schedule_time: the original scheduled time. Retries do not change it.
        due_at: when the next attempt is due, or the last one was.
        start_time, end_time: of the last attempt.
        first_start_time: the start of the first run, which ends the waiting time.
        retries: the number of attempts that did not finish the job. `expand=retries` returns the outcome of each.
        attempt: the number of the current, last or next attempt.
        version: the version, which grows with every change; also the ETag.
        cancel_requested: why the worker was asked to stop the job.
        owner: the submitter.
        summary: the type and first line of the error, at most 200 characters; of a suspended job, what it waits for.
        retry_of: the id of the job this one repeats.
        retried_as: the id of the job that repeats this one; "" if there is none.
        progress: with `expand=progress`, the job's progress; None if the task reported none.
        options: with `expand=options`, the job's own options of runs and placement.
        via: `broker`: a recorded sent job (docs/history.md), else `store`.
    """

    job_id: str
    id: str
    status: str
    state: JobState
    job_type: str
    task: str
    queue: str
    priority: int
    tenant: str
    schedule_time: str | None
    due_at: str | None
    start_time: str | None
    end_time: str | None
    submitted_at: str | None
    expires_at: str | None
    retries: int
    attempt: int
    version: int
    worker: str
    cancel_requested: str | None
    error: ErrorView | None
    description: str
    owner: str
    labels: dict[str, str]
    retry_of: str
    retried_as: str
    depends_on: list[JobDependency]
    first_start_time: str | None = None
    progress: ProgressView | None = None
    summary: str = ""
    options: JobOptionsView | None = None
    via: Via = "store"


class JobLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event in a job's timeline."""

    log_time: str | None
    log_level: str
    log_message: str


class ResultProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The reason the result of a succeeded job, or the value of a run, cannot be shown.

    Attributes:
        code: `result_expired`, `result_damaged`, or `unsupported` if this server cannot read large results.
        detail: the same in words.
    """

    code: str
    detail: str


class JobDetails(JobView, frozen=True, kw_only=True, omit_defaults=False):
    """A job with the parts requested by `expand`.

    Attributes:
        payload: the keyword arguments; None if not requested, or stored elsewhere.
        args: the positional arguments.
        result: the task's return value.
        result_problem: why a succeeded job has no `result`; None if it has one.
        logs: the job's timeline, oldest first.
        refusals: of a recorded sent job, the actions that are impossible now, each with the reason.
    """

    payload: dict[str, Any] | None = None
    args: list[Any] | None = None
    result: Any = None
    result_problem: ResultProblem | None = None
    logs: list[JobLogEntry] | None = None
    refusals: dict[str, str] = {}


class JobList(ListPage, frozen=True, kw_only=True):
    """A page of jobs."""

    items: list[JobView]


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """An unusual event in a job's history.

    Attributes:
        by: who caused it; for `interrupted`, the worker of the interrupted run.
        started: the start of the interrupted or preempted run.
    """

    version: int
    at: str | None
    kind: str
    state: JobState
    by: str
    note: str
    started: str | None = None


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of a job.

    Attributes:
        state: running, or how it ended; failed if the job was retried.
        app_version: the version of the app's code that its worker announced; "" if unknown.
        processor_seconds: processor time of its run; null if unknown, as for coroutines, which share a thread.
        peak_memory: peak memory of its run in bytes; null if unknown, or if it had no process of its own.
    """

    attempt: int
    state: JobState
    started: str | None
    ended: str | None
    worker: str
    app_version: str
    processor_seconds: float | None
    peak_memory: int | None
    error: ErrorView | None


class HistoryList(msgspec.Struct, frozen=True):
    items: list[HistoryView]


class AttemptList(msgspec.Struct, frozen=True):
    items: list[AttemptView]


class JobCount(msgspec.Struct, frozen=True):
    """The number of matching jobs.

    Attributes:
        is_exact: False if there are more than `count`.
    """

    count: int
    is_exact: bool


class JobCountOf(msgspec.Struct, frozen=True):
    """The number of jobs matching one filter; see `JobCount`."""

    filter: str
    count: int
    is_exact: bool


class JobCounts(msgspec.Struct, frozen=True):
    """The number of jobs matching each filter, in the order of the request."""

    items: list[JobCountOf]


class HistogramBar(msgspec.Struct, frozen=True):
    """Jobs that were created in an interval.

    Attributes:
        at: the begin of the interval.
        counts: the number of jobs in each state that has any.
        is_exact: False if there may be more.
    """

    at: str
    counts: dict[JobState, int]
    is_exact: bool


class JobHistogram(msgspec.Struct, frozen=True):
    """Numbers of jobs by the time of their creation. Each bar covers `seconds`; the first one begins at `since`."""

    since: str
    until: str
    seconds: float
    items: list[HistogramBar]


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of submitting a job.

    Attributes:
        status: `submitted`.
        job_id: the client's id, or the store's id if the client chose none.
        id: the store's id.
        is_new: whether this request created the job. If False, it existed with the same content.
        definition, definition_version: the definition the job was created from; "" and 0 if there is none.
    """

    status: str
    job_id: str
    id: str
    state: JobState
    version: int
    is_new: bool
    task: str = ""
    queue: str = ""
    definition: str = ""
    definition_version: int = 0


class RefusedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A rejected job of a batch, and the reason."""

    status: str
    problem: ProblemDetails


class SubmittedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The result of each job of a batch, in the order of the request."""

    submitted: int
    refused: int
    items: list[Any]


class SignalledJob(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that a job has, until a call of its task takes it.

    Attributes:
        id: the store's id of the job.
    """

    job_id: str
    id: str
    signal: str
    signal_id: str


class ChangedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job after a change.

    Attributes:
        status: the applied change: updated, cancelled, cancel_requested, held, released, retried or cloned.
        job_id: the job's id.
        id: the store's id.
        reattached: of a retry: the number of ended dependents that wait for the new run; absent means none.
    """

    status: str
    job_id: str
    id: str
    state: JobState
    version: int
    reattached: int = 0


class RefusalView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was not changed, and the reason."""

    job_id: str
    code: str
    detail: str


class RepeatedView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was retried as a new job."""

    job_id: str
    retried_as: str


class BulkView(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a bulk request.

    Attributes:
        matched: the number of jobs examined; for a dry run, all matching jobs, up to 100,000.
        refused: the number of jobs not changed. `refusals` lists the first hundred.
        next: the `cursor` of the next request; None at the end.
    """

    dry_run: bool
    matched: int
    done: int
    refused: int
    refusals: list[RefusalView]
    next: str | None


class BulkOperationView(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk operation in the background.

    Attributes:
        tenant: the tenant whose jobs are affected; null for all tenants.
        schedule_time, priority: the new values, for `change`.
        rate: the maximum number of jobs per second; null for no limit.
        by: who started it.
        state: running, done, or aborted.
        matched: the number of matching jobs at the start, up to 100,000.
        reattached: the number of ended dependents that wait for retried jobs.
        done, refused: the number of jobs changed and not changed so far. `refusals` lists the first hundred not
            changed, `repeated` the first hundred retried as new jobs.
    """

    bulk_id: str
    tenant: str | None
    action: BulkAction
    filter: str
    schedule_time: str | None
    priority: int | None
    rate: float | None
    note: str
    by: str
    state: BulkState
    matched: int
    done: int
    reattached: int
    refused: int
    refusals: list[RefusalView]
    repeated: list[RepeatedView]
    began: str | None
    ended: str | None


class BulkOperationList(msgspec.Struct, frozen=True):
    """Bulk operations, newest first. `next` is the `cursor` of the next page."""

    items: list[BulkOperationView]
    next: str | None
