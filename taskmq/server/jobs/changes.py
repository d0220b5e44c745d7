"""`PUT`, `PATCH` and `DELETE` of a job."""

from typing import Annotated, Any, Final

from litestar import Request, Response
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.job_requests import ChangeBody
from taskmq.api.jobs import ChangedJob
from taskmq.app_api.jobs.orders import changed_view, priority_number
from taskmq.contracts.jobs import JobRecord
from taskmq.model.identity import Permission
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import OwnJobs, ServedApp, matched_version
from taskmq.server.problems import Problem

CHANGES: Final = Handlers("jobs")


@CHANGES.handle("PATCH /jobs/{job_id}", "patchJob", Permission.JOBS_CHANGE, "Change a job")
@CHANGES.handle("PUT /jobs/{job_id}", "putJob", Permission.JOBS_CHANGE, "Change a job")
async def change_job(
    job_id: FromPath[str],
    data: JSONBody[ChangeBody],
    request: Request[Any, Any, Any],
    app: ServedApp,
    jobs: OwnJobs,
) -> Response[ChangedJob]:
    """Change a job that no worker has received. 409: it runs or has ended; 412: `If-Match` names another version."""
    record = await jobs.get(job_id)
    if data.payload is not None and data.kwargs is not None:
        raise Problem.about("kwargs", "payload and kwargs are aliases: give only one")
    known = app.tasks.get(record.task)
    if data.queue is not None and (known is None or known.queue != data.queue):
        raise Problem.about("queue", f"task {record.task!r} has another queue: omit this field")
    with matched_version(request.headers) as version:
        after = await jobs.change(
            record,
            version=version,
            at=data.schedule_time,
            delay=data.delay,
            priority=priority_number(data.priority),
            queue=data.queue,
            expires=data.expires_at,
            args=data.args,
            kwargs=data.kwargs if data.payload is None else data.payload,
            note=data.note,
        )
    return changed_response("updated", after, jobs)


@CHANGES.handle("DELETE /jobs/{job_id}", "cancelJob", Permission.JOBS_CHANGE, "Cancel a job")
async def cancel_job(
    job_id: FromPath[str],
    request: Request[Any, Any, Any],
    jobs: OwnJobs,
    note: Annotated[str, QueryParameter(max_length=500, description="Reason, for the job's history.")] = "",
) -> Response[ChangedJob]:
    """Cancel a job. 200: it will not run; 202: its worker was asked to stop it; 409: it has ended."""
    with matched_version(request.headers) as version:
        after = await jobs.cancel(job_id, version=version, note=note)
    is_over = after.state.is_final
    return changed_response("cancelled" if is_over else "cancel_requested", after, jobs, code=200 if is_over else 202)


def changed_response(status: str, record: JobRecord, jobs: TenantJobs, *, code: int = 200) -> Response[ChangedJob]:
    """Build the response about a changed job."""
    made = changed_view(jobs, status, record)
    return Response(made, status_code=code, headers={"ETag": f'"{record.version}"'})
