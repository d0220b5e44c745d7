"""Jobs of a `JobModel` as values: where they wait, what schedulers get of them, and how their errors are kept."""

from taskmq.contracts.jobs import DispatchedJob, JobRecord, Lane
from taskmq.model.outcome import ErrorRecord
from taskmq.model.units import storable

__all__ = ["escaped", "handed_out", "lane_of", "reason_of", "shard_of"]


def shard_of(job_id: str) -> int:
    """The timer's shard of a job."""
    return int(job_id[-2:], 16) & 63


def lane_of(job: JobRecord) -> Lane:
    """The lane of a job that is ready."""
    return Lane(job.queue, job.priority, job.tenant)


def escaped(error: ErrorRecord) -> ErrorRecord:
    """The error as a store keeps it, which holds neither NUL nor lone surrogates."""
    return ErrorRecord(
        type_name=storable(error.type_name), message=storable(error.message), traceback=storable(error.traceback)
    )


def reason_of(text: str) -> ErrorRecord:
    """The error of an end that no run has come to."""
    return escaped(ErrorRecord(type_name="", message=text, traceback=""))


def handed_out(job: JobRecord, *, outages: int) -> DispatchedJob:
    """The job as schedulers are given it.

    Args:
        outages: how many have interrupted runs of its attempt.
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
    )
