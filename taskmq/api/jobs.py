"""Jobs as the API shows them, and what becomes of what is done to them."""

from typing import Any

import msgspec

from taskmq.api.problems import ProblemDetails
from taskmq.api.values import ListPage
from taskmq.model.jobs.bulks import BulkAction, BulkState
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.states import JobState

__all__ = [
    "AttemptList",
    "AttemptView",
    "BulkOperationList",
    "BulkOperationView",
    "BulkView",
    "ChangedJob",
    "ErrorView",
    "HistoryList",
    "HistoryView",
    "JobCount",
    "JobCountOf",
    "JobCounts",
    "JobDetails",
    "JobList",
    "JobLogEntry",
    "JobView",
    "ProgressView",
    "RefusalView",
    "RefusedJob",
    "RepeatedView",
    "ResultProblem",
    "SubmittedJob",
    "SubmittedJobs",
]


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a job's last attempt, or why it was cancelled."""

    type: str
    message: str
    traceback: str = ""


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is, as its task has said last.

    Attributes:
        done, total: so much of so much, in the task's own unit; `total` is None where the task does not know.
        attempt: the one that said so.
        state: `running`, or what that attempt came to.
    """

    done: float
    total: float | None
    note: str
    attempt: int
    updated_at: str | None
    state: JobState


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the API shows it.

    Attributes:
        job_id: what its submitter called it, else the store's id.
        id: the store's id.
        status: queued, running, completed, failed or cancelled.
        state: the same more exactly: waiting, held, scheduled, queued, dispatched, running, retrying, succeeded,
            failed, cancelled, expired, skipped, upstream_failed.
        job_type: the task's name; `task` is the same.
        priority: 0 (lowest) to 9.
        schedule_time: when it was to run at first; retries do not change it.
        due_at: when it is, or was, to run: its next attempt, or the last one.
        start_time, end_time: of its last attempt.
        first_start_time: when its first run began; it waited until then.
        retries: attempts that did not end it; with `expand=retries`, what became of each.
        attempt: the number of the one that runs, ended the job, or comes next.
        version: grows with every change; the ETag.
        cancel_requested: why its worker is to stop it.
        owner: who submitted it.
        summary: type and first line of the error, cut after 200 characters.
        retry_of: the job that it is a repetition of.
        retried_as: the one that repeats it since it has ended; "" where it was not retried so.
        progress: with `expand=progress`, how far it is; None where its task has said nothing (of late), or the state
            cannot be reached.
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


class JobLogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is known of a job's course."""

    log_time: str | None
    log_level: str
    log_message: str


class ResultProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why the result of a job that succeeded cannot be shown.

    Attributes:
        code: `result_expired`, `result_damaged`, or `unsupported` where this server does not reach large results.
        detail: the same in words.
    """

    code: str
    detail: str


class JobDetails(JobView, frozen=True, kw_only=True, omit_defaults=False):
    """A job with what was asked for by `expand`.

    Attributes:
        payload: its arguments by name; None where they were not asked for, or are kept elsewhere.
        args: those by place.
        result: what its task has returned.
        result_problem: why there is no `result` of a job that has succeeded; None where there is one.
        logs: what is known of its course, the earliest first.
    """

    payload: dict[str, Any] | None = None
    args: list[Any] | None = None
    result: Any = None
    result_problem: ResultProblem | None = None
    logs: list[JobLogEntry] | None = None


class JobList(ListPage, frozen=True, kw_only=True):
    """A page of a list of jobs."""

    items: list[JobView]


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job and is no ordinary step.

    Attributes:
        by: who has done it; of `interrupted`, the worker whose run that was.
        started: when the run began that was interrupted, or has given way.
    """

    version: int
    at: str | None
    kind: str
    state: JobState
    by: str
    note: str
    started: str | None = None


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not end its job."""

    attempt: int
    started: str | None
    ended: str | None
    worker: str
    error: ErrorView | None


class HistoryList(msgspec.Struct, frozen=True):
    items: list[HistoryView]


class AttemptList(msgspec.Struct, frozen=True):
    items: list[AttemptView]


class JobCount(msgspec.Struct, frozen=True):
    """How many jobs fit.

    Attributes:
        is_exact: False where there are more than that.
    """

    count: int
    is_exact: bool


class JobCountOf(msgspec.Struct, frozen=True):
    """How many jobs fit one of several filters; see `JobCount`."""

    filter: str
    count: int
    is_exact: bool


class JobCounts(msgspec.Struct, frozen=True):
    """How many jobs fit each of some filters, in their order."""

    items: list[JobCountOf]


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that was kept.

    Attributes:
        status: `submitted`.
        job_id: the client's own id, else the store's.
        id: the store's.
        is_new: this request has made it; else it was there, with the same content.
        definition, definition_version: that it was made from; "" and 0 where it was made from none.
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
    """A job of many that was not kept, and why."""

    status: str
    problem: ProblemDetails


class SubmittedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each job of many, in their order."""

    submitted: int
    refused: int
    items: list[Any]


class ChangedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job after a change.

    Attributes:
        status: what was done: updated, cancelled, cancel_requested, held, released, retried or cloned.
        job_id: what it is called.
        id: the store's id.
    """

    status: str
    job_id: str
    id: str
    state: JobState
    version: int


class RefusalView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that stayed as it was, and why."""

    job_id: str
    code: str
    detail: str


class RepeatedView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was retried as another one."""

    job_id: str
    retried_as: str


class BulkView(msgspec.Struct, frozen=True, kw_only=True):
    """What a request has come to.

    Attributes:
        matched: jobs that it has looked at; of a dry run: all that fit, up to 100,000.
        refused: how many stayed as they were; `refusals` are the first hundred of them.
        next: what to say as `cursor` to go on; None at the end.
    """

    dry_run: bool
    matched: int
    done: int
    refused: int
    refusals: list[RefusalView]
    next: str | None


class BulkOperationView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is done to many jobs.

    Attributes:
        tenant: whose jobs are meant; null: everybody's.
        schedule_time, priority: of a change.
        rate: to so many jobs a second; null: as fast as it goes.
        by: who has begun it.
        state: running, done, or aborted.
        matched: how many jobs there were when it began, up to 100,000.
        done, refused: so many jobs so far; `refusals` are the first hundred that stayed as they were, `repeated` the
            first hundred that were retried as other jobs.
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
    refused: int
    refusals: list[RefusalView]
    repeated: list[RepeatedView]
    began: str | None
    ended: str | None


class BulkOperationList(msgspec.Struct, frozen=True):
    """Bulk operations, the last one first; `next` is what to say as `cursor` for the next page."""

    items: list[BulkOperationView]
    next: str | None
