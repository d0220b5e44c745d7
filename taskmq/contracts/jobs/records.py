"""Stored jobs as values."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import structs

from taskmq.model.envelope import decode_envelope
from taskmq.model.history.suspensions import MISMATCH, SUSPENDED
from taskmq.model.identity import AuditEntry
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.jobs.details import JobDetail
from taskmq.model.jobs.filters import Via
from taskmq.model.jobs.quotas import CountedJob, QuotaExcess
from taskmq.model.jobs.uniqueness import KeyHolder, UniqueKey
from taskmq.model.outcome import ErrorRecord
from taskmq.model.retry import RunOptions
from taskmq.model.states import TERMINAL, UNDERWAY, JobState

# Error types that are no failures, and the states of jobs that wait because of them.
_REASONS: Final = {SUSPENDED: JobState.SCHEDULED, MISMATCH: JobState.HELD}


class StepOfRun(NamedTuple):
    """The step of a run that a job belongs to; its end is a row of the run's inbox.

    Attributes:
        child: number of the step's child; -1: the step itself.
    """

    run: str
    name: str
    child: int


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A submitted job. Times are ms since the epoch.

    Attributes:
        id: assigned by the store: a UUID of version 7, so that jobs sort by their submission.
        tenant: "" for a job without one.
        key: the id that the submitter chose, unique within the tenant while the job is kept.
        fingerprint: of the request; the same key with another fingerprint is a conflict.
        priority: 0 (lowest) to 9.
        due: when it is due; past: now.
        expires: after this instant it does not start.
        held: whether it waits until it is released.
        unique: its uniqueness rule.
        line: name of the line in which it gets a place, see `JobClaim`.
        body: an envelope in JSON without `attempt`, `eta` and `store`, ready to be published.
        detail: with `depends_on` it first waits for those jobs of the same tenant.
        step: stores set it for the jobs that they submit for runs.
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
    line: str | None = None
    step: StepOfRun | None = None


class DependencyRefusal(msgspec.Struct, frozen=True):
    """The reason why a job with dependencies was not created.

    Attributes:
        id: of the job that it should wait for.
        reason: `unknown`: its tenant has no such job (any more); `cycle`: that job, of the same call, waits for it.
    """

    id: str
    reason: Literal["unknown", "cycle"]


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The result of a submission.

    Attributes:
        id: the job's: its own, or that of the job that had the key before.
        is_new: whether this submission created the job.
        is_same: whether the request equals that job's; True for a new job.
        state, version: the job's at that moment.
        is_duplicate: whether another job has the unique key; nothing was created.
        exceeded: the quota that was exceeded, so nothing was created; the other fields are meaningless then.
        refusal: the reason why nothing was created; the state is `unknown`.
        reattached: of a retry: number of ended dependents that wait for this job now.
    """

    id: str
    is_new: bool
    is_same: bool
    state: JobState
    version: int
    is_duplicate: bool = False
    exceeded: QuotaExcess | None = None
    refusal: DependencyRefusal | None = None
    reattached: int = 0

    @property
    def existing(self) -> JobState | None:
        """State of the job that existed before; None if this submission created the job."""
        return None if self.is_new else self.state

    @property
    def is_conflict(self) -> bool:
        """Whether a job of other content has the key; nothing was created."""
        return not (self.is_same or self.is_duplicate) and self.exceeded is None and self.refusal is None


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the store keeps it. Times are ms since the epoch.

    Attributes:
        id, tenant, key, task, queue, priority, expires, body, detail: as in `NewJob`.
        version: increases by 1 with every change.
        attempt: number of the attempt that runs, ended the job, or is next; from 1.
        token: of its last dispatch; 0 before the first.
        due: due time of its last attempt, or of the next one.
        scheduled: its original due time; None: `due`, which was never postponed.
        submitted: time of the submission.
        dispatched, started, finished: times of its last attempt.
        first_started: start of its first run.
        worker: the worker that ran it last.
        cancel_requested: why its worker must stop it; None if no one requested that.
        processor_ms, peak_memory: processor time, and peak memory in bytes, of the run that ended it; None: unknown.
        content_type, result: of a job that succeeded.
        error: of a failed job or attempt; for other ends, `message` is the reason.
        retried_as: the store's id of the job that repeats it; "": none does.
        reattached: number of ended dependents that wait for it again; only in the answer to a retry.
        via: `broker`: a recorded sent job (`record="all"`), which has no body.
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
    reattached: int = 0
    processor_ms: int | None = None
    peak_memory: int | None = None
    via: Via = "store"

    @property
    def scheduled_for(self) -> int:
        """Original due time of the job, ms since the epoch."""
        return self.due if self.scheduled is None else self.scheduled

    @property
    def failure(self) -> ErrorRecord | None:
        """Error of its last attempt, or reason of its end; None if a call of the task suspended or held it."""
        return None if self.error is not None and self.error.type_name in _REASONS else self.error

    @property
    def suspension(self) -> str:
        """Reason why a suspended job waits, or why its run held it, for people; "" for other jobs."""
        if self.error is None or _REASONS.get(self.error.type_name) is not self.state:
            return ""
        return self.error.message

    @property
    def run(self) -> RunOptions:
        """Options of its runs that differ from its task's.

        Raises:
            MalformedMessage: its body is unreadable.
        """
        return decode_envelope(self.body).run or RunOptions()


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a job beyond the ordinary steps.

    Attributes:
        version: the job's new version.
        at: ms since the epoch.
        kind: an operator's action, or a finding of the scheduler or of a worker's report. `ended`: the store ended
            the job itself, and no worker reports the end: it expired before it was dispatched, its dependencies
            cannot be met, it can never run, its workers died, or it would run again but was to be cancelled.
            `interrupted`: a run ended without an outcome, by an outage, or because its worker stopped or was lost;
            the attempt does not count.
        state: the job's new state.
        by: the author.
        note: what was changed, from and to which value, and why.
        started: start of the run that was interrupted or preempted.
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
    """A history entry with its job.

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
    """An attempt. Times are ms since the epoch.

    Attributes:
        state: running, or how it ended; `failed` if the job was retried.
        ended: None while it runs.
        processor_ms, peak_memory: processor time, and peak memory in bytes, of its run; None: unknown.
    """

    attempt: int
    state: JobState = JobState.FAILED
    started: int | None = None
    ended: int | None = None
    worker: str = ""
    error: ErrorRecord | None = None
    processor_ms: int | None = None
    peak_memory: int | None = None


def last_attempt(job: JobRecord) -> AttemptRecord:
    """Return the attempt of a job that runs or has ended."""
    return AttemptRecord(
        attempt=job.attempt,
        state=job.state,
        started=job.started,
        ended=job.finished,
        worker=job.worker,
        error=job.failure,
        processor_ms=job.processor_ms,
        peak_memory=job.peak_memory,
    )


def all_attempts(job: JobRecord, earlier: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    """Return all attempts of a job, the earliest first; one of a running or ended job is in its record."""
    has_last = job.started is not None and (job.state is JobState.RUNNING or job.state in TERMINAL)
    if not has_last or (earlier and earlier[-1].started == job.started):
        return list(earlier)
    return [*earlier, last_attempt(job)]


class JobUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one job, valid for the state and version that it was decided on. Unset fields stay unchanged.

    Attributes:
        before: the state that it must be in.
        version: the version that it must have.
        after: its new state; the same if only fields change.
        due, expires: ms since the epoch. A `change` of `due` also sets the original due time.
        depends_on: of an ended job that is resumed: jobs of the same tenant that it first waits for.
        cancel_requested: why its worker must stop it.
        error: of the end, if the change ends the job.
        kind, by, note: of the event that is written.
        audit: an audit entry that the same transaction writes.
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


def counted_facts(job: NewJob, *, now: int) -> CountedJob:
    """Return the facts that quotas count of a job submitted at this instant (ms)."""
    owner = "" if job.detail is None else job.detail.owner
    is_queued = not job.held and job.due <= now
    is_step = job.step is not None
    return CountedJob(tenant=job.tenant, user=owner, size=len(job.body), is_queued=is_queued, is_step=is_step)


def count_reattached(entry: AuditEntry, count: int) -> AuditEntry:
    """Return the audit entry of a retry with the number of dependents that wait for the new run."""
    return structs.replace(entry, after={**(entry.after or {}), "reattached": count}) if count else entry


def over_quota(job: NewJob, excess: QuotaExcess) -> Submitted:
    """Return the result of a submission that a quota refused."""
    return Submitted(job.id, False, False, JobState.QUEUED, 0, exceeded=excess)


def rename_dependencies(job: NewJob, ids: Mapping[str, str]) -> NewJob:
    """Return the job with dependencies on these ids instead of the old ones."""
    if job.detail is None or not any(each.id in ids for each in job.detail.depends_on):
        return job
    depends_on = tuple(structs.replace(each, id=ids.get(each.id, each.id)) for each in job.detail.depends_on)
    return structs.replace(job, detail=structs.replace(job.detail, depends_on=depends_on))


def replacement(holder: KeyHolder, *, by: str) -> JobUpdate:
    """Return the change of a job whose unique key another one takes: its end, or the request to cancel it.

    Args:
        by: the id of the other one.
    """
    return cancellation(holder.id, holder.state, holder.version, reason=f"replaced by job {by}")


def cancellation(job_id: str, state: JobState, version: int, *, reason: str) -> JobUpdate:
    """Return the change that cancels a live job: its end, or the request to its worker to stop it."""
    is_request = state in UNDERWAY
    return JobUpdate(
        id=job_id,
        before=state,
        version=version,
        after=state if is_request else JobState.CANCELLED,
        cancel_requested=reason if is_request else msgspec.UNSET,
        error=msgspec.UNSET if is_request else ErrorRecord(type_name="JobCancelled", message=reason, traceback=""),
        kind="cancel_requested" if is_request else "cancel",
        note=reason,
    )


class StateCounts(msgspec.Struct, frozen=True):
    """Numbers of jobs by state. Unless `is_exact`, there may be more."""

    counts: dict[JobState, int]
    is_exact: bool


class JobPage(msgspec.Struct, frozen=True):
    """A page of jobs, the newest first, without bodies and results.

    Attributes:
        after: cursor of the next page; None on the last one.
        is_bounded: whether the search stopped at its limit before the end; the next page continues there.
    """

    jobs: list[JobRecord]
    after: str | None
    is_bounded: bool = False
