"""Job operations at the API's original paths, with their names: create, schedule, status.

A created job is held until it is scheduled. `name` is the name of its task or definition.
"""

from typing import Any, Final, Literal

import msgspec
from litestar.params import FromQuery, JSONBody

from taskmq.api.jobs import JobView
from taskmq.api.values import Instant, Note, ShortText
from taskmq.app_api.jobs.views import job_view
from taskmq.app_api.views import instant_text
from taskmq.model.identity import Permission, may
from taskmq.operations.job_orders import JobOrder
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.access import permission_problem
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import CallerGiven, OwnJobs
from taskmq.server.problems import Problem

COMPATIBLE_CALLS: Final = Handlers("compatible names")


class CreateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to schedule later."""

    name: ShortText
    description: Note = ""
    parameters: dict[str, Any] = {}


class CreatedView(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is not scheduled yet."""

    job_id: str
    name: str
    status: Literal["created"] = "created"


class JobScheduleBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time at which a job runs, or its cancellation.

    Attributes:
        job_id: the id of a created job; or `definition`, the name of a definition or task to create a job from.
        status: `canceled` to cancel the job.
    """

    job_id: ShortText | None = None
    definition: ShortText | None = None
    scheduled_time: Instant | None = None
    status: Literal["scheduled", "canceled"] = "scheduled"


class ScheduledView(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its scheduled time."""

    job_id: str
    scheduled_time: str | None
    status: Literal["scheduled", "canceled"]


@COMPATIBLE_CALLS.handle(
    "POST /jobs/create",
    "createJobCompat",
    Permission.JOBS_SUBMIT,
    "Create a job",
    status_code=201,
    is_compatible=True,
)
async def create_job(data: JSONBody[CreateBody], jobs: OwnJobs) -> CreatedView:
    """Create a job that is held until it is scheduled."""
    order = JobOrder(data.name, [], data.parameters, {"description": data.description, "held": True})
    made = await jobs.submit(order)
    return CreatedView(job_id=made.job_id, name=data.name)


@COMPATIBLE_CALLS.handle(
    "POST /jobs/schedule", "scheduleJobCompat", Permission.JOBS_SUBMIT, "Schedule or cancel a job", is_compatible=True
)
async def schedule_job(data: JSONBody[JobScheduleBody], caller: CallerGiven, jobs: OwnJobs) -> ScheduledView:
    """Schedule or cancel a job. An existing job needs the permission jobs.change."""
    if (data.job_id is None) is (data.definition is None):
        raise Problem.about("job_id", "give either job_id or definition")
    if data.job_id is not None and not may(caller.identity, Permission.JOBS_CHANGE, caller.tenant):
        raise permission_problem(Permission.JOBS_CHANGE)
    if data.status == "canceled":
        if data.job_id is None:
            raise Problem.about("job_id", "required to cancel a job")
        record = await jobs.cancel(data.job_id)
        return ScheduledView(job_id=data.job_id, scheduled_time=instant_text(record.due), status="canceled")
    if data.scheduled_time is None:
        raise Problem.about("scheduled_time", "required to schedule a job")
    if data.definition is not None:
        made = await jobs.submit(JobOrder(data.definition, [], {}, {"eta": data.scheduled_time}))
        record = await jobs.get(made.id)
    else:
        assert data.job_id is not None
        record = await _reschedule(jobs, data.job_id, data)
    return ScheduledView(job_id=jobs.name_of(record), scheduled_time=instant_text(record.due), status="scheduled")


@COMPATIBLE_CALLS.handle(
    "GET /jobs/status", "getJobStatusCompat", Permission.JOBS_READ, "Get a job's status", is_compatible=True
)
async def get_status(job_id: FromQuery[str], jobs: OwnJobs) -> JobView:
    """Return a job by its id."""
    record = await jobs.get(job_id)
    return job_view(record, jobs.name_of(record))


async def _reschedule(jobs: TenantJobs, job_id: str, body: JobScheduleBody) -> Any:
    record = await jobs.change(job_id, at=body.scheduled_time)
    return await jobs.release(record.id) if record.state == "held" else record
