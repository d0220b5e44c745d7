"""Actions on a job: hold, release, signal, retry, clone."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import Request, Response
from litestar.params import FromPath, JSONBody

from taskmq.api.job_requests import ActionBody, CloneBody, JobSignalBody, RetryBody
from taskmq.api.jobs import ChangedJob, SignalledJob
from taskmq.app_api.jobs.orders import priority_number
from taskmq.contracts.jobs import JobRecord
from taskmq.model.identity import Permission
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, OwnJobs, idempotency_key, matched_version
from taskmq.server.jobs.changes import changed_response
from taskmq.server.problems import Problem

ACTIONS: Final = Handlers("jobs")


@ACTIONS.handle("POST /jobs/{job_id}/hold", "holdJob", Permission.JOBS_CHANGE, "Hold a job")
async def hold_job(
    job_id: FromPath[str], request: Request[Any, Any, Any], jobs: OwnJobs, data: JSONBody[ActionBody | None] = None
) -> Response[ChangedJob]:
    """Hold a waiting job until it is released."""
    return await _act("held", jobs.hold, job_id, request, jobs, data)


@ACTIONS.handle("POST /jobs/{job_id}/release", "releaseJob", Permission.JOBS_CHANGE, "Release a held job")
async def release_job(
    job_id: FromPath[str], request: Request[Any, Any, Any], jobs: OwnJobs, data: JSONBody[ActionBody | None] = None
) -> Response[ChangedJob]:
    """Release a held job. It runs at its scheduled time."""
    return await _act("released", jobs.release, job_id, request, jobs, data)


@ACTIONS.handle("POST /jobs/{job_id}/signals", "signalJob", Permission.EVENTS_SEND, "Send a signal to a job")
async def signal_job(api: ApiGiven, job_id: FromPath[str], data: JSONBody[JobSignalBody]) -> SignalledJob:
    """Send a signal to a job. A call of its task that waits for it returns the value.

    409: the job has ended, or has no room for the signal. 422: the call has a form, which the value does not fit.
    """
    return await api.jobs.signal(job_id, data)


@ACTIONS.handle("POST /jobs/{job_id}/retry", "retryJob", Permission.JOBS_CHANGE, "Run or retry a job now")
async def retry_job(
    job_id: FromPath[str],
    request: Request[Any, Any, Any],
    jobs: OwnJobs,
    data: JSONBody[RetryBody | None] = None,
) -> Response[ChangedJob]:
    """Run a waiting job now, or an ended job again: it continues (200), or a new job repeats it (201).

    409: another job, named in `retried_as`, already repeats it, and `again` is not set.
    """
    before = await jobs.get(job_id)
    body = data or RetryBody()
    key = idempotency_key(request.headers)
    with matched_version(request.headers) as version:
        after = await jobs.retry(before, version=version, mode=body.mode, again=body.again, key=key, note=body.note)
    return changed_response("retried", after, jobs, code=200 if after.id == before.id else 201)


@ACTIONS.handle("POST /jobs/{job_id}/clone", "cloneJob", Permission.JOBS_SUBMIT, "Clone a job", status_code=201)
async def clone_job(
    job_id: FromPath[str],
    request: Request[Any, Any, Any],
    jobs: OwnJobs,
    data: JSONBody[CloneBody | None] = None,
) -> Response[ChangedJob]:
    """Submit a copy of a job, linked to the original, with the same or other arguments."""
    body = data or CloneBody()
    if body.payload is not None and body.kwargs is not None:
        raise Problem.about("kwargs", "payload and kwargs are aliases: give only one")
    after = await jobs.clone(
        job_id,
        new_id=body.job_id or idempotency_key(request.headers),
        at=body.schedule_time,
        args=body.args,
        kwargs=body.kwargs if body.payload is None else body.payload,
        priority=priority_number(body.priority),
    )
    return changed_response("cloned", after, jobs, code=201)


async def _act(
    status: str,
    action: Callable[..., Awaitable[JobRecord]],
    job_id: str,
    request: Request[Any, Any, Any],
    jobs: TenantJobs,
    body: ActionBody | None,
) -> Response[ChangedJob]:
    with matched_version(request.headers) as version:
        after = await action(job_id, version=version, note="" if body is None else body.note)
    return changed_response(status, after, jobs)
