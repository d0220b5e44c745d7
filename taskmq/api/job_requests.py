"""What is asked about jobs: submissions, changes, the same for many."""

from typing import Annotated, Any

import msgspec

from taskmq.api.values import MOST_ITEMS, Instant, Note, PriorityLevel, ShortText
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.dependencies import MOST_UPSTREAM, DependencyCondition
from taskmq.operations.bulks import BulkAction

__all__ = [
    "ActionBody",
    "BeginBulkBody",
    "BulkBody",
    "ChangeBody",
    "CloneBody",
    "RetryBody",
    "SubmitBody",
    "UpstreamJob",
]


class UpstreamJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that another one waits for.

    Attributes:
        job_id: the id that its submitter has given it, or the store's.
        condition: how it has to end.
    """

    job_id: ShortText
    condition: DependencyCondition = "succeeded"


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is to be submitted.

    Attributes:
        job_type: the name of a task, or of a definition; `task` is the same.
        job_id: an id of the client's own: the same again with the same content is the same job.
        schedule_time: when it is to run, with a time zone; or `delay`, such as "10m". Default: now.
        priority: high, medium or low, or 0 (lowest) to 9.
        payload: the task's arguments by name; `kwargs` is the same.
        args: its arguments by place.
        queue: the task's own, which is the default.
        expires_at: when it is not to start any more; or `expires_in`, such as "1h".
        resources: what it takes of the node that it is placed on, in a queue whose jobs are placed: amounts by name,
            of memory and storage also such as "16G". Default: what its task says.
        node_labels: that the node must have.
        preemptible: whether a run may be stopped for a pool that is owed its share. Default: what its task says.
        held: it does not run until it is released.
        owner: for people and quotas. Default: the caller, and through a server no one else.
        depends_on: ids of jobs that have to succeed before it runs, or `{"job_id": ..., "condition": "ended"}`.
    """

    job_type: ShortText | None = None
    task: ShortText | None = None
    job_id: ShortText | None = None
    schedule_time: Instant | None = None
    delay: ShortText | float | None = None
    priority: PriorityLevel | None = None
    payload: dict[str, Any] | None = None
    kwargs: dict[str, Any] | None = None
    args: list[Any] | None = None
    queue: ShortText | None = None
    expires_at: Instant | None = None
    expires_in: ShortText | float | None = None
    description: str = ""
    owner: ShortText = ""
    labels: dict[str, str] = {}
    resources: dict[str, float | ShortText] = {}
    node_labels: dict[str, ShortText] = {}
    preemptible: bool | None = None
    held: bool = False
    depends_on: Annotated[list[ShortText | UpstreamJob], msgspec.Meta(max_length=MOST_UPSTREAM)] = []


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be different about a job; what is left out stays.

    Attributes:
        schedule_time: when it is to run, with a time zone; or `delay` from now on, such as "10m".
        payload, args: in place of all its arguments, those by name and those by place; `kwargs` is the same as
            `payload`.
        expires_at: when it is not to start any more.
        note: why; for its history.
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
    """Why something is done to a job; for its history."""

    note: Note = ""


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to run a job again.

    Attributes:
        mode: of one that has ended: `resume`: it goes on, under its id, with its next attempt; `new`: another job
            repeats it. Default: it goes on where its submitter chose its id and it neither has succeeded nor was
            cancelled while it ran.
        again: also where another job repeats it already.
        note: why; for its history.
    """

    mode: RetryMode | None = None
    again: bool = False
    note: Note = ""


class CloneBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job is repeated.

    Attributes:
        job_id: of the new one. Default: one of the store's.
        schedule_time: when it is to run. Default: now.
        payload, args: in place of all its arguments, those by name and those by place; `kwargs` is the same as
            `payload`. Default: the same call.
        priority: default: the same.
    """

    job_id: ShortText | None = None
    schedule_time: Instant | None = None
    payload: dict[str, Any] | None = None
    kwargs: dict[str, Any] | None = None
    args: list[Any] | None = None
    priority: PriorityLevel | None = None


class BeginBulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done to which jobs, in the background.

    Attributes:
        action: cancel, hold, release, retry or change.
        filter: as in the list of jobs; what it says of times counts from now. `everything` where it is to be all.
        schedule_time, delay, priority: what `change` makes different.
        mode: of a retry, as for one job.
        again: `retry` is of jobs that were retried before, too.
        rate: to so many jobs a second; default: as fast as it goes.
        note: why; for the jobs' histories and the audit.
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
    """What is done to which jobs.

    Attributes:
        action: cancel, hold, release, retry or change.
        filter: as in the list of jobs; `everything` where it is to be all of them.
        dry_run: only say how many there are.
        limit: to so many in this request.
        cursor: the `next` of the request before.
        schedule_time, delay, priority: what `change` makes different.
        mode: of a retry, as for one job.
        again: `retry` is of jobs that were retried before, too.
        note: why; for the jobs' histories and the audit.
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
