"""Requests about jobs: submissions, changes and bulk operations."""

from typing import Annotated, Any

import msgspec

from taskmq.api.values import MOST_ITEMS, Instant, Note, PriorityLevel, ShortText
from taskmq.model.jobs.bulks import BulkAction
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.dependencies import MOST_UPSTREAM, DependencyCondition
from taskmq.model.retry import Backoff
from taskmq.options.task_options import Guarantee


class UpstreamJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that another job depends on.

    Attributes:
        job_id: the submitter's id of the job, or the store's id.
        condition: how the job must end.
    """

    job_id: ShortText
    condition: DependencyCondition = "succeeded"


class RetryTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The pace of a job's retries. Default: the task's.

    Attributes:
        backoff: how the longest delay grows with each attempt.
        base: the longest delay after the first attempt, such as "10s".
        cap: the upper bound of every delay.
        jitter: whether a delay is drawn from 0 to the longest one.
    """

    backoff: Backoff | None = None
    base: ShortText | float | None = None
    cap: ShortText | float | None = None
    jitter: bool | None = None


class PlaceTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The node of a job, in a queue with placement.

    Attributes:
        labels: labels the node must have.
        prefers: labels the node should have; the job waits up to `patience` seconds for such a node.
        gang: a name and the number of its jobs, which start together.
    """

    labels: dict[str, ShortText] = {}
    prefers: dict[str, ShortText] = {}
    patience: float | None = None
    gang: tuple[ShortText, int] | None = None


class JobTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a job that definitions may set as well.

    Attributes:
        queue: the task's own queue, which is the default.
        priority: high, medium or low, or 0 (lowest) to 9.
        expires_in: the time after submission after which the job no longer starts, such as "1h".
        timeout: the maximum duration of a run, at most the task's.
        max_attempts: the maximum of runs, including the first one.
        retry: the pace of retries.
        guarantee: `at_most_once` runs the job once or never, without retries.
        owner: the owner, for display and quotas. Default: the caller. Through a server, it can only be the caller.
        resources: the amounts it uses on its node, by name, in a queue with placement. Memory and storage may be
            strings such as "16G". Default: the task's.
        node_labels: labels the node must have, as in `place`.
        preemptible: whether a run may be stopped in favour of a pool below its share. Default: the task's.
    """

    queue: ShortText | None = None
    priority: PriorityLevel | None = None
    expires_in: ShortText | float | None = None
    timeout: ShortText | float | None = None
    max_attempts: int | None = None
    retry: RetryTerms | None = None
    guarantee: Guarantee | None = None
    description: str = ""
    owner: ShortText = ""
    labels: dict[str, str] = {}
    resources: dict[str, float | ShortText] = {}
    node_labels: dict[str, ShortText] = {}
    place: PlaceTerms | None = None
    preemptible: bool | None = None


class SubmitBody(JobTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to submit.

    Attributes:
        job_type: the name of a task or definition; `task` is an alias.
        job_id: an id chosen by the client. Submitting the same id and content again returns the existing job.
        order_key: jobs of one key run one at a time, in an ordered queue. Default: the task's key for the arguments.
        idempotency_key: the work of one key is done once. Default: the task's key for the arguments.
        meta: strings that the task reads as `ctx.meta`.
        schedule_time: when to run, with a time zone; or `delay`, such as "10m". Default: now.
        payload: the keyword arguments; `kwargs` is an alias.
        args: the positional arguments.
        expires_at: the time after which the job no longer starts; or `expires_in`.
        held: hold the job until it is released.
        depends_on: ids of jobs that must succeed first, or `{"job_id": ..., "condition": "ended"}`.
    """

    job_type: ShortText | None = None
    task: ShortText | None = None
    job_id: ShortText | None = None
    order_key: ShortText | None = None
    idempotency_key: ShortText | None = None
    meta: dict[str, str] = {}
    schedule_time: Instant | None = None
    delay: ShortText | float | None = None
    payload: dict[str, Any] | None = None
    kwargs: dict[str, Any] | None = None
    args: list[Any] | None = None
    expires_at: Instant | None = None
    held: bool = False
    depends_on: Annotated[list[ShortText | UpstreamJob], msgspec.Meta(max_length=MOST_UPSTREAM)] = []


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a job. Omitted fields stay unchanged.

    Attributes:
        schedule_time: when to run, with a time zone; or `delay` from now, such as "10m".
        payload, args: new keyword and positional arguments, which replace all old ones; `kwargs` is an alias of
            `payload`.
        expires_at: the time after which the job no longer starts.
        note: the reason, for the job's history.
    """

    schedule_time: Instant | None = None
    delay: ShortText | float | None = None
    priority: PriorityLevel | None = None
    payload: dict[str, Any] | None = None
    kwargs: dict[str, Any] | None = None
    args: list[Any] | None = None
    queue: ShortText | None = None
    expires_at: Instant | None = None
    note: Note = ""


class ActionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason for an action on a job, for its history."""

    note: Note = ""


class JobSignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal for a job.

    Attributes:
        signal: the name that a call of the task waits for.
        value: the value that the call returns.
        signal_id: sending it again has no effect. Default: generated.
    """

    signal: ShortText
    value: Any = None
    signal_id: ShortText | None = None


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to run a job again.

    Attributes:
        mode: for an ended job: `resume` continues with the next attempt under the same id; `new` creates a new job.
            Default: `resume` if the submitter chose the id and the job neither succeeded nor was cancelled while
            running.
        again: retry even if another job already repeats it.
        note: the reason, for the job's history.
    """

    mode: RetryMode | None = None
    again: bool = False
    note: Note = ""


class CloneBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A copy of a job.

    Attributes:
        job_id: the id of the copy. Default: generated by the store.
        schedule_time: when to run. Default: now.
        payload, args: new keyword and positional arguments, which replace all old ones; `kwargs` is an alias of
            `payload`. Default: the job's arguments.
        priority: the copy's priority. Default: the job's.
    """

    job_id: ShortText | None = None
    schedule_time: Instant | None = None
    payload: dict[str, Any] | None = None
    kwargs: dict[str, Any] | None = None
    args: list[Any] | None = None
    priority: PriorityLevel | None = None


class BeginBulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bulk operation to start in the background.

    Attributes:
        action: cancel, hold, release, retry or change.
        filter: the filter, as in the list of jobs. Relative times count from now. Set `everything` to match all jobs.
        schedule_time, delay, priority: the new values, for `change`.
        mode: how to retry, as for a single job.
        again: also `retry` jobs that were already retried.
        rate: the maximum number of jobs per second. Default: no limit.
        note: the reason, for the jobs' histories and the audit log.
    """

    action: BulkAction
    filter: Annotated[str, msgspec.Meta(max_length=4_000)] = ""
    everything: bool = False
    schedule_time: Instant | None = None
    delay: ShortText | float | None = None
    priority: PriorityLevel | None = None
    mode: RetryMode | None = None
    again: bool = False
    rate: Annotated[float, msgspec.Meta(ge=0.01, le=1e6)] | None = None
    note: Note = ""


class BulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An action on all jobs that match a filter.

    Attributes:
        action: cancel, hold, release, retry or change.
        filter: the filter, as in the list of jobs. Set `everything` to match all jobs.
        dry_run: only count the matching jobs.
        limit: the maximum number of jobs in this request.
        cursor: the `next` of the previous response.
        schedule_time, delay, priority: the new values, for `change`.
        mode: how to retry, as for a single job.
        again: also `retry` jobs that were already retried.
        note: the reason, for the jobs' histories and the audit log.
    """

    action: BulkAction
    filter: Annotated[str, msgspec.Meta(max_length=4_000)] = ""
    everything: bool = False
    dry_run: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ITEMS)] = 200
    cursor: ShortText | None = None
    schedule_time: Instant | None = None
    delay: ShortText | float | None = None
    priority: PriorityLevel | None = None
    mode: RetryMode | None = None
    again: bool = False
    note: Note = ""
