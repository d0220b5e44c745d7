"""Values derived from the jobs of a `JobModel`: lanes, dispatches, attempts and errors."""

from collections.abc import Iterable

from msgspec import UNSET, Struct
from msgspec.structs import replace

from taskmq.contracts.jobs import AttemptRecord, DispatchedJob, HistoryEntry, JobRecord, JobUpdate, Lane
from taskmq.model.jobs.reports import MOST_UNHEEDED, UNHEEDED, Report
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.model.units import storable


class OpenBatch(Struct):
    """Dispatched jobs by id and token, until the broker has confirmed all."""

    id: int
    partition: int
    epoch: int
    tokens: dict[str, int]
    confirmed: bool = False


def shard_of(job_id: str) -> int:
    """Return the timer shard of a job."""
    return int(job_id[-2:], 16) & 63


def lane_of(job: JobRecord) -> Lane:
    """Return the lane of a ready job."""
    return Lane(job.queue, job.priority, job.tenant)


def is_noted(events: Iterable[HistoryEntry]) -> bool:
    """Return whether a report without effect is recorded as another event of a job with these events."""
    return sum(event.kind in UNHEEDED for event in events) < MOST_UNHEEDED


def escape_error(error: ErrorRecord) -> ErrorRecord:
    """Return the error as a store keeps it, without NUL and lone surrogates."""
    return ErrorRecord(
        type_name=storable(error.type_name), message=storable(error.message), traceback=storable(error.traceback)
    )


def reason_of(text: str) -> ErrorRecord:
    """Return the error of an end without a run."""
    return escape_error(ErrorRecord(type_name="", message=text, traceback=""))


def dispatched_job(job: JobRecord, *, outages: int, crashes: int | None) -> DispatchedJob:
    """The job as schedulers are given it.

    Args:
        outages: how many have interrupted runs of its attempt.
        crashes: how many workers died while they had its dispatch; None: its message never came back.
    """
    return DispatchedJob(
        id=job.id,
        key=job.key,
        tenant=job.tenant,
        task=job.task,
        queue=job.queue,
        priority=job.priority,
        attempt=job.attempt,
        token=job.token,
        expires=job.expires,
        body=job.body,
        due=job.due if job.first_started is None else None,
        outages=outages,
        owner="" if job.detail is None else job.detail.owner,
        crashes=crashes,
    )


def resume_job(job: JobRecord, update: JobUpdate, *, waits: bool) -> JobRecord:
    """Return an ended job that resumes.

    Args:
        waits: whether it waits for other jobs.
    """
    return replace(
        job,
        state=JobState.WAITING if waits else JobState.QUEUED,
        version=job.version + 1,
        attempt=job.attempt + (job.dispatched is not None),
        dispatched=None,
        due=job.due if update.due is UNSET else update.due,
        scheduled=job.scheduled if update.due is UNSET else job.scheduled_for,
        expires=None,
        finished=None,
        cancel_requested=None,
        body=job.body if update.body is UNSET else update.body,
        error=job.error if job.state is JobState.FAILED else None,
        retried_as="",
        processor_ms=None,
        peak_memory=None,
    )


def reattach_job(job: JobRecord, *, now: int) -> JobRecord:
    """Return a job that one of its dependencies ended and that waits again."""
    return replace(
        job,
        state=JobState.WAITING,
        version=job.version + 1,
        expires=None if job.expires is None or job.expires <= now else job.expires,
        finished=None,
        cancel_requested=None,
        error=None,
    )


def attempt_of(job: JobRecord, report: Report, *, ended: int, error: ErrorRecord | None) -> AttemptRecord:
    """Return the attempt that a report ends, when another one follows."""
    return AttemptRecord(
        attempt=job.attempt,
        started=report.started,
        ended=ended,
        worker=report.worker,
        error=error,
        processor_ms=report.processor,
        peak_memory=report.peak_memory,
    )


def by_id(job: JobRecord) -> str:
    """Return the sort key by submission."""
    return job.id


def by_due(job: JobRecord) -> tuple[int, str]:
    """Return the sort key within a lane."""
    return job.due, job.id
