"""The calls of document 000 for jobs, at its paths and in its words: create, schedule, status.

A job that is created waits, held, until it is scheduled; `name` is that of its task or definition.
"""

from typing import Any, Final, Literal

import msgspec
from litestar import get, post
from litestar.params import FromQuery, JSONBody

from taskmq.api.jobs import JobView
from taskmq.api.values import Instant, Note, ShortText
from taskmq.app_api.jobs.views import job_view
from taskmq.app_api.views import instant_text
from taskmq.model.identity import Permission, may
from taskmq.operations.tenant_jobs import JobOrder, TenantJobs
from taskmq.server.access import refused
from taskmq.server.inputs import CallerGiven, OwnJobs
from taskmq.server.problems import Problem

__all__ = ["DOCUMENT_CALLS"]


class CreateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is to be scheduled later."""

    name: ShortText
    description: Note = ""
    parameters: dict[str, Any] = {}


class CreatedView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits to be scheduled."""

    job_id: str
    name: str
    status: Literal["created"] = "created"


class JobScheduleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a job is to run, or that it is not.

    Attributes:
        job_id: of a job that was created; or `definition`, the name of a definition or a task, for another one.
        status: `canceled`: it is not to run.
    """

    job_id: ShortText | None = None
    definition: ShortText | None = None
    scheduled_time: Instant | None = None
    status: Literal["scheduled", "canceled"] = "scheduled"


class ScheduledView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is scheduled now."""

    job_id: str
    scheduled_time: str | None
    status: Literal["scheduled", "canceled"]


@post(
    "/jobs/create",
    permission=Permission.JOBS_SUBMIT,
    operation_id="createJobOfDocument",
    summary="Create a job",
    tags=["compatible names"],
)
async def create_job(data: JSONBody[CreateBody], jobs: OwnJobs) -> CreatedView:
    """Keep a job that waits until it is scheduled."""
    order = JobOrder(data.name, [], data.parameters, {"description": data.description, "held": True})
    made = await jobs.submit(order)
    return CreatedView(job_id=made.job_id, name=data.name)


@post(
    "/jobs/schedule",
    status_code=200,
    permission=Permission.JOBS_SUBMIT,
    operation_id="scheduleJobOfDocument",
    summary="Schedule or cancel a job",
    tags=["compatible names"],
)
async def schedule_job(data: JSONBody[JobScheduleBody], caller: CallerGiven, jobs: OwnJobs) -> ScheduledView:
    """Have a job run at a time, or not at all. One that is there already takes the permission jobs.change."""
    if (data.job_id is None) is (data.definition is None):
        raise Problem.about("job_id", "say job_id, or definition")
    if data.job_id is not None and not may(caller.identity, Permission.JOBS_CHANGE, caller.tenant):
        raise refused(Permission.JOBS_CHANGE)
    if data.status == "canceled":
        if data.job_id is None:
            raise Problem.about("job_id", "which job is canceled?")
        record = await jobs.cancel(data.job_id)
        return ScheduledView(job_id=data.job_id, scheduled_time=instant_text(record.due), status="canceled")
    if data.scheduled_time is None:
        raise Problem.about("scheduled_time", "when?")
    if data.definition is not None:
        made = await jobs.submit(JobOrder(data.definition, [], {}, {"eta": data.scheduled_time}))
        record = await jobs.get(made.id)
    else:
        assert data.job_id is not None
        record = await _scheduled(jobs, data.job_id, data)
    return ScheduledView(job_id=jobs.name_of(record), scheduled_time=instant_text(record.due), status="scheduled")


@get(
    "/jobs/status",
    permission=Permission.JOBS_READ,
    operation_id="getJobStatusOfDocument",
    summary="The status of a job",
    tags=["compatible names"],
)
async def get_status(job_id: FromQuery[str], jobs: OwnJobs) -> JobView:
    """A job by its id."""
    record = await jobs.get(job_id)
    return job_view(record, jobs.name_of(record))


DOCUMENT_CALLS: Final[tuple[Any, ...]] = (create_job, schedule_job, get_status)


async def _scheduled(jobs: TenantJobs, job_id: str, body: JobScheduleBody) -> Any:
    record = await jobs.change(job_id, at=body.scheduled_time)
    return await jobs.release(record.id) if record.state == "held" else record
