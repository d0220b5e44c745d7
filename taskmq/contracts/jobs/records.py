"""Jobs of the store as values."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import structs

from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.quotas import CountedJob, QuotaExcess
from taskmq.model.jobs.uniqueness import KeyHolder, UniqueKey
from taskmq.model.nodes import JobNeeds
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState

__all__ = [
    "AttemptRecord",
    "DependencyRefusal",
    "HistoryEntry",
    "JobAction",
    "JobDetail",
    "JobPage",
    "JobRecord",
    "JobUpdate",
    "NewJob",
    "Submitted",
    "counted",
    "over_quota",
    "renamed",
    "replacement",
]


class JobDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What few jobs have.

    Attributes:
        definition, definition_version: the template that it was made from.
        retry_of: the job that it is a repetition of.
        needs: what it asks of the node that it is placed on.
        preemptible: whether its run may be stopped for others; None: its task says so.
        depends_on: the jobs that it waits for, or has waited for.
    """

    description: str = ""
    owner: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    definition: str = ""
    definition_version: int = 0
    retry_of: str = ""
    needs: JobNeeds | None = None
    preemptible: bool | None = None
    depends_on: tuple[JobDependency, ...] = ()


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is submitted. Times are ms since the epoch.

    Attributes:
        id: the store's own: a UUID of version 7, by which jobs are listed in the order of their submission.
        tenant: "" for a job that has none.
        key: the id that the submitter chose; it is this job's among the tenant's for as long as the job is kept.
        fingerprint: of everything that was asked for; the same key with another one is another job's.
        priority: 0 (lowest) to 9.
        due: when it is to run; past: now.
        expires: when it is not to start any more.
        held: it is not to run until it is released.
        unique: it is to be the only job of a key.
        body: an envelope in JSON without `attempt`, `eta` and `store`, ready to be sent.
        detail: with `depends_on` it waits for those jobs first, which are of the same tenant.
    """

    id: str
    tenant: str = ""
    key: str | None = None
    fingerprint: bytes = b""
    task: str
    queue: str
    priority: int = 4
    due: int = 0
    expires: int | None = None
    held: bool = False
    body: bytes
    detail: JobDetail | None = None
    unique: UniqueKey | None = None


class DependencyRefusal(msgspec.Struct, frozen=True):
    """Why a job was not made that was to wait for others.

    Attributes:
        id: of the job that it was to wait for.
        reason: `unknown`: its tenant has no such job (any more); `cycle`: that one waits for it, of the same call.
    """

    id: str
    reason: Literal["unknown", "cycle"]


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """What became of a submission.

    Attributes:
        id: the job's: its own, or that of the one that had the key before.
        is_new: this submission has made it.
        is_same: what was asked for is what that job is; True for a new one.
        state, version: the job's at that moment.
        is_duplicate: the job is another one, which has the unique key; nothing was made.
        exceeded: the quota for which nothing was made; the other fields say nothing then.
        refusal: nothing was made; the state is `unknown`.
    """

    id: str
    is_new: bool
    is_same: bool
    state: JobState
    version: int
    is_duplicate: bool = False
    exceeded: QuotaExcess | None = None
    refusal: DependencyRefusal | None = None

    @property
    def existing(self) -> JobState | None:
        """The state of the job that was there before; None where this submission has made it."""
        return None if self.is_new else self.state

    @property
    def is_conflict(self) -> bool:
        """Whether a job of other content has the key; nothing was made."""
        return not (self.is_same or self.is_duplicate) and self.exceeded is None and self.refusal is None


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the store has it. Times are ms since the epoch.

    Attributes:
        id, tenant, key, task, queue, priority, expires, body, detail: as in `NewJob`.
        version: grows by 1 with every change.
        attempt: the number of the attempt that runs, ended the job, or comes next; from 1.
        token: of its last dispatch; 0 before the first.
        due: when it was, or is, to run: its last attempt, or the next one.
        scheduled: when it was to run at first; None: `due`, which nothing has put off.
        submitted: when.
        dispatched, started, finished: when, of its last attempt.
        first_started: when its first run began.
        worker: who ran it last.
        cancel_requested: why its worker is to stop it; None where that was not asked for.
        content_type, result: of one that succeeded.
        error: of one that has failed, or whose last attempt did; of other ends, `message` is the reason.
        retried_as: the store's id of the job that repeats it since it has ended; "": it was not retried so.
    """

    id: str
    tenant: str = ""
    key: str | None = None
    task: str
    queue: str
    priority: int
    state: JobState
    version: int
    attempt: int = 1
    token: int = 0
    due: int
    scheduled: int | None = None
    submitted: int
    expires: int | None = None
    dispatched: int | None = None
    started: int | None = None
    finished: int | None = None
    first_started: int | None = None
    worker: str = ""
    cancel_requested: str | None = None
    body: bytes = b""
    content_type: str = ""
    result: bytes = b""
    error: ErrorRecord | None = None
    detail: JobDetail | None = None
    retried_as: str = ""

    @property
    def scheduled_for(self) -> int:
        """The time at which it was to run at first, ms since the epoch."""
        return self.due if self.scheduled is None else self.scheduled


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a job and is no ordinary step.

    Attributes:
        version: the job's afterwards.
        at: ms since the epoch.
        kind: an operator's action, or what a worker's report or the scheduler has found. `ended`: the store has ended
            the job itself, and no worker reports the end: its time was over before it was dispatched, what it waited
            for will not come, or it can never be run. `interrupted`: a run ended without an outcome, by an outage, a
            worker that stops or one that is lost; the attempt does not count.
        state: the job's afterwards.
        by: who has done it.
        note: what was changed, from and to which value, and why.
        started: when the run began that was interrupted, or has given way.
    """

    version: int
    at: int
    kind: Literal[
        "change", "cancel", "cancel_requested", "hold", "release", "retry", "superseded", "lost", "refused",
        "undispatched", "unknown_attempt", "detached", "preempt_requested", "preempted", "ended",
        "interrupted",
    ]  # fmt: skip
    state: JobState
    by: str = ""
    note: str = ""
    started: int | None = None


class JobAction(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the history of one of many jobs.

    Attributes:
        job_id: the store's id.
        key: the submitter's id; None if the submitter chose none.
    """

    job_id: str
    key: str | None = None
    tenant: str
    task: str
    queue: str
    entry: HistoryEntry


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that did not end its job. Times are ms since the epoch."""

    attempt: int
    started: int | None = None
    ended: int
    worker: str = ""
    error: ErrorRecord | None = None


class JobUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one job, made for the state and version that it was decided on. Unset fields stay as they are.

    Attributes:
        before: the state that it must be in.
        version: the version that it must have.
        after: its state afterwards; the same where only its fields change.
        due, expires: ms since the epoch. A `change` of `due` says anew when the job was to run at first.
        depends_on: of a job that has ended and is to go on: what it waits for first, of the same tenant.
        cancel_requested: why its worker is to stop it.
        error: of the end that the change is.
        kind, by, note: of the event that is written.
        audit: an entry of the audit, which the same transaction writes.
    """

    id: str
    before: JobState
    version: int
    after: JobState
    due: int | msgspec.UnsetType = msgspec.UNSET
    expires: int | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    queue: str | msgspec.UnsetType = msgspec.UNSET
    body: bytes | msgspec.UnsetType = msgspec.UNSET
    depends_on: tuple[JobDependency, ...] = ()
    cancel_requested: str | msgspec.UnsetType = msgspec.UNSET
    error: ErrorRecord | msgspec.UnsetType = msgspec.UNSET
    kind: Literal["change", "cancel", "cancel_requested", "hold", "release", "retry", "preempt_requested"]
    by: str = ""
    note: str = ""
    audit: AuditEntry | None = None


def counted(job: NewJob, *, now: int) -> CountedJob:
    """What quotas see of a job that is submitted at this instant (ms)."""
    owner = "" if job.detail is None else job.detail.owner
    is_queued = not job.held and job.due <= now
    return CountedJob(tenant=job.tenant, user=owner, size=len(job.body), is_queued=is_queued)


def over_quota(job: NewJob, excess: QuotaExcess) -> Submitted:
    """What became of a job for which there was no room."""
    return Submitted(job.id, False, False, JobState.QUEUED, 0, exceeded=excess)


def renamed(job: NewJob, ids: Mapping[str, str]) -> NewJob:
    """The job, which waits for these ids in place of those."""
    if job.detail is None or not any(each.id in ids for each in job.detail.depends_on):
        return job
    depends_on = tuple(structs.replace(each, id=ids.get(each.id, each.id)) for each in job.detail.depends_on)
    return structs.replace(job, detail=structs.replace(job.detail, depends_on=depends_on))


def replacement(holder: KeyHolder, *, by: str) -> JobUpdate:
    """The change of a job whose unique key another one takes: its end, or the request of it.

    Args:
        by: the id of the other one.
    """
    why = f"replaced by job {by}"
    is_request = holder.state is JobState.DISPATCHED
    return JobUpdate(
        id=holder.id,
        before=holder.state,
        version=holder.version,
        after=holder.state if is_request else JobState.CANCELLED,
        cancel_requested=why if is_request else msgspec.UNSET,
        error=msgspec.UNSET if is_request else ErrorRecord(type_name="JobCancelled", message=why, traceback=""),
        kind="cancel_requested" if is_request else "cancel",
        note=why,
    )


class JobPage(msgspec.Struct, frozen=True):
    """Some of the jobs that were asked for, the newest first, without bodies and results.

    Attributes:
        after: where the next page begins; None where there is none.
        is_bounded: the search stopped before it had looked at everything; the next page goes on from there.
    """

    jobs: list[JobRecord]
    after: str | None
    is_bounded: bool = False
