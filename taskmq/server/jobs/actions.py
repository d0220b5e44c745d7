"""What else is done to a job: hold, release, retry, clone."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import Request, Response, post
from litestar.params import FromPath, JSONBody

from taskmq.api.job_requests import ActionBody, CloneBody, RetryBody
from taskmq.api.jobs import ChangedJob
from taskmq.contracts.jobs import JobRecord
from taskmq.model.identity import Permission
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.inputs import OwnJobs, idempotency_key, matched_version, priority_number
from taskmq.server.jobs.changes import changed
from taskmq.server.problems import Problem
from taskmq.server.settings import API

__all__ = ["ACTIONS", "ActionBody", "CloneBody", "RetryBody"]


@post(
    f"{API}/jobs/{{job_id:str}}/hold",
    status_code=200,
    permission=Permission.JOBS_CHANGE,
    operation_id="holdJob",
    summary="Hold a job",
    tags=["jobs"],
)
async def hold_job(
    job_id: FromPath[str], request: Request[Any, Any, Any], jobs: OwnJobs, data: JSONBody[ActionBody | None] = None
) -> Response[ChangedJob]:
    """Have a job that waits not run until it is released."""
    return await _act("held", jobs.hold, job_id, request, jobs, data)


@post(
    f"{API}/jobs/{{job_id:str}}/release",
    status_code=200,
    permission=Permission.JOBS_CHANGE,
    operation_id="releaseJob",
    summary="Release a held job",
    tags=["jobs"],
)
async def release_job(
    job_id: FromPath[str], request: Request[Any, Any, Any], jobs: OwnJobs, data: JSONBody[ActionBody | None] = None
) -> Response[ChangedJob]:
    """Let a held job run, at its time."""
    return await _act("released", jobs.release, job_id, request, jobs, data)


@post(
    f"{API}/jobs/{{job_id:str}}/retry",
    status_code=200,
    permission=Permission.JOBS_CHANGE,
    operation_id="retryJob",
    summary="Run a job now",
    tags=["jobs"],
)
async def retry_job(
    job_id: FromPath[str],
    request: Request[Any, Any, Any],
    jobs: OwnJobs,
    data: JSONBody[RetryBody | None] = None,
) -> Response[ChangedJob]:
    """Run a job now: one that waits at once; one that has ended again: it goes on (200), or another repeats it (201).

    One that another job repeats already is 409, unless `again` is said: its `retried_as` names that one.
    """
    before = await jobs.get(job_id)
    body = data or RetryBody()
    key = idempotency_key(request.headers)
    with matched_version(request.headers) as version:
        after = await jobs.retry(before, version=version, mode=body.mode, again=body.again, key=key, note=body.note)
    return changed("retried", after, jobs, code=200 if after.id == before.id else 201)


@post(
    f"{API}/jobs/{{job_id:str}}/clone",
    status_code=201,
    permission=Permission.JOBS_SUBMIT,
    operation_id="cloneJob",
    summary="Repeat a job",
    tags=["jobs"],
)
async def clone_job(
    job_id: FromPath[str],
    request: Request[Any, Any, Any],
    jobs: OwnJobs,
    data: JSONBody[CloneBody | None] = None,
) -> Response[ChangedJob]:
    """Submit another job of the same task, linked to this one: with the same call, or with other arguments."""
    body = data or CloneBody()
    if body.payload is not None and body.kwargs is not None:
        raise Problem.about("kwargs", "payload and kwargs are the same: say one of them")
    after = await jobs.clone(
        job_id,
        new_id=body.job_id or idempotency_key(request.headers),
        at=body.schedule_time,
        args=body.args,
        kwargs=body.kwargs if body.payload is None else body.payload,
        priority=priority_number(body.priority),
    )
    return changed("cloned", after, jobs, code=201)


ACTIONS: Final = (hold_job, release_job, retry_job, clone_job)


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
    return changed(status, after, jobs)
