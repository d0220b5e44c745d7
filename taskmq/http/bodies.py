"""Request bodies about jobs, built from method arguments."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from taskmq.api.job_requests import ChangeBody, PlaceTerms, RetryTerms, SubmitBody
from taskmq.api.jobs import JobDetails, RefusedJob, SubmittedJob, SubmittedJobs
from taskmq.api.values import PriorityLevel
from taskmq.errors import InvalidOption, JobCancelled, TaskFailed
from taskmq.http.exchange import decode, error_named
from taskmq.http.retries import seconds_of_duration
from taskmq.model.nodes import PlaceOptions
from taskmq.model.states import JobState
from taskmq.model.units import Duration
from taskmq.options.task_options import RetryOptions

T = TypeVar("T")


def new_key() -> str:
    """Create a random `Idempotency-Key`."""
    return uuid.uuid4().hex


def named_bodies(bodies: Sequence[SubmitBody]) -> list[SubmitBody]:
    """Give each submission an id, so that the request can be repeated."""
    key = new_key()
    return [
        body if body.job_id is not None else replace(body, job_id=f"{key}:{number}")
        for number, body in enumerate(bodies)
    ]


def change_body(
    *,
    at: datetime | None,
    delay: Duration | None,
    priority: PriorityLevel | None,
    queue: str | None,
    expires: datetime | None,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    note: str,
) -> ChangeBody:
    """Build the body of a change.

    Raises:
        InvalidOption: the delay is invalid.
    """
    return ChangeBody(
        schedule_time=at,
        delay=seconds_of_duration(delay, "delay"),
        priority=priority,
        kwargs=None if kwargs is None else dict(kwargs),
        args=None if args is None else list(args),
        queue=queue,
        expires_at=expires,
        note=note,
    )


def query_of_jobs(
    filter: str,  # noqa: A002 - the parameter's name in the API
    *,
    status: str | None,
    job_type: str | None,
    since: datetime | None,
    until: datetime | None,
) -> dict[str, Any]:
    """Build the query parameters that select jobs."""
    return {"filter": filter, "status": status, "job_type": job_type, "start_time": since, "end_time": until}


def retry_terms(retry: RetryOptions | None) -> RetryTerms | None:
    """Build the pace of retries for a body.

    Raises:
        InvalidOption: a field is unknown or invalid.
    """
    if retry is None:
        return None
    base, cap = seconds_of_duration(retry.get("base"), "base"), seconds_of_duration(retry.get("cap"), "cap")
    return _convert("retry", {**retry, "base": base, "cap": cap}, RetryTerms)


def place_terms(place: PlaceOptions | None) -> PlaceTerms | None:
    """Build the choice of the node for a body; raises as `retry_terms` does."""
    return None if place is None else _convert("place", place, PlaceTerms)


def _convert(what: str, given: Mapping[str, object], kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"{what}: {error}") from None


def items_of(found: SubmittedJobs, *, server: str) -> list[SubmittedJob | RefusedJob]:
    """Decode the result of each submitted job."""
    items: list[SubmittedJob | RefusedJob] = []
    for item in found.items:
        kind: type[SubmittedJob | RefusedJob] = RefusedJob if item.get("status") == "refused" else SubmittedJob
        items.append(decode(msgspec.json.encode(item), kind, server=server))
    return items


def result_of(job: JobDetails) -> Any:
    """Return the task's return value, once the job has ended.

    Raises:
        TaskFailed: the job failed.
        JobCancelled: the job was cancelled, expired, or skipped, or an upstream job failed.
        ResultExpired, ResultDamaged: the result is no longer stored, or is damaged.
        UnsupportedFeature: the result is stored where the server cannot read it.
        InvalidOption: the job has not ended.
    """
    match job.state:
        case JobState.SUCCEEDED:
            if job.result_problem is not None:
                raise error_named(job.result_problem.code, job.result_problem.detail)
            return job.result
        case JobState.FAILED:
            error = job.error
            raise TaskFailed(
                job.job_id,
                type_name="" if error is None else error.type,
                message="" if error is None else error.message,
                traceback="" if error is None else error.traceback,
                attempts=job.attempt,
            )
        case state if state.is_final:
            why = "" if job.error is None else f": {job.error.message}"
            raise JobCancelled(f"job {job.job_id} is {state}{why}")
        case state:
            raise InvalidOption(f"job {job.job_id} has not ended: it is {state}")
