"""`POST /jobs`: submit one job, or up to 1,000 with a result for each."""

from typing import Any, Final

from litestar import Request, Response
from litestar.params import JSONBody

from taskmq.api.job_requests import SubmitBody
from taskmq.api.jobs import RefusedJob, SubmittedJob, SubmittedJobs
from taskmq.api.problems import problem_of
from taskmq.api.values import API, MOST_ITEMS
from taskmq.app import TaskMQ
from taskmq.app_api.jobs.orders import order_of, submitted_job
from taskmq.errors import InvalidOption, TaskMQError
from taskmq.model.identity import Permission
from taskmq.model.nodes import job_needs
from taskmq.operations.job_orders import JobOrder, SubmitOutcome
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.server.access import Caller
from taskmq.server.edge import fact_of
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import CallerGiven, OwnJobs, ServedApp, idempotency_key
from taskmq.server.problems import Problem

SUBMISSIONS: Final = Handlers("jobs")


@SUBMISSIONS.handle(
    "POST /jobs", "submitJobs", Permission.JOBS_SUBMIT, "Submit a job, or up to 1,000", status_code=201
)
async def submit_jobs(
    data: JSONBody[SubmitBody | list[SubmitBody]],
    request: Request[Any, Any, Any],
    app: ServedApp,
    caller: CallerGiven,
    jobs: OwnJobs,
) -> Response[SubmittedJob | SubmittedJobs]:
    """Submit jobs. Each is durable in the store when the response is sent.

    201: a new job; 200: the same job exists under its `job_id`, or several were submitted; 409: a different job has
    the id. An `Idempotency-Key` replaces `job_id`; for several jobs, item n has the key followed by `:n`.
    """
    key = idempotency_key(request.headers)
    if isinstance(data, list):
        return await _submit_many(data, key, app, caller, jobs)
    made = submitted_job(await jobs.submit(_order_of(data, app, caller, key=key)))
    root = fact_of(request.scope, "taskmq_root")
    headers = {"ETag": f'"{made.version}"', "Location": f"{root}{API}/jobs/{made.id}"}
    return Response(made, status_code=201 if made.is_new else 200, headers=headers)


def _order_of(body: SubmitBody, app: TaskMQ, caller: Caller, *, key: str | None = None) -> JobOrder:
    """Build the order from a request body.

    Raises:
        Problem: fields exclude each other, or the task is missing.
    """
    for one, other in (("job_type", "task"), ("payload", "kwargs")):
        if getattr(body, one) is not None and getattr(body, other) is not None:
            raise Problem.about(other, f"{one} and {other} are aliases: give only one")
    if body.job_type is None and body.task is None:
        raise Problem.about("job_type", "give job_type (or task)", f"known: {_list_tasks(app, caller)}")
    for one, other in (("schedule_time", "delay"), ("expires_at", "expires_in")):
        if getattr(body, one) is not None and getattr(body, other) is not None:
            raise Problem.about(other, f"{one} and {other} exclude each other")
    if body.job_id == "":
        raise Problem.about("job_id", "must not be empty; omit it, or choose an id")
    if body.job_id is not None and key not in (None, body.job_id):
        raise Problem.about("job_id", "job_id and Idempotency-Key are aliases: give only one")
    order = order_of(body, job_id=key)
    try:
        job_needs(body.resources, {"labels": body.node_labels})
    except InvalidOption as error:
        raise Problem.about("resources", str(error)) from error
    return order


async def _submit_many(
    bodies: list[SubmitBody], key: str | None, app: TaskMQ, caller: Caller, jobs: TenantJobs
) -> Response[SubmittedJob | SubmittedJobs]:
    if not 1 <= len(bodies) <= MOST_ITEMS:
        raise Problem.about("body", f"must have 1 to {MOST_ITEMS:,} jobs, not {len(bodies):,}")
    orders: list[JobOrder | Problem] = []
    for number, body in enumerate(bodies):
        try:
            orders.append(_order_of(body, app, caller, key=None if key is None else f"{key}:{number}"))
        except Problem as problem:
            orders.append(problem)
    outcomes = iter(await jobs.submit_many([order for order in orders if isinstance(order, JobOrder)]))
    items = [_item(order if isinstance(order, Problem) else next(outcomes), caller) for order in orders]
    submitted = sum(isinstance(item, SubmittedJob) for item in items)
    return Response(SubmittedJobs(submitted=submitted, refused=len(items) - submitted, items=items), status_code=200)


def _item(outcome: SubmitOutcome | TaskMQError | Problem, caller: Caller) -> SubmittedJob | RefusedJob:
    match outcome:
        case SubmitOutcome():
            return submitted_job(outcome)
        case Problem():
            return RefusedJob(status="refused", problem=outcome.details(caller.request_id))
        case error:
            return RefusedJob(status="refused", problem=problem_of(error, caller.request_id))


def _list_tasks(app: TaskMQ, caller: Caller) -> str:
    return ", ".join(sorted(filter(caller.allows, app.tasks)))
