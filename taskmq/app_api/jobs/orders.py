"""Conversion of request bodies to options and orders of jobs, and of outcomes to responses."""

from typing import Any, Final, cast

from msgspec import structs

from taskmq.api.job_requests import JobTerms, PlaceTerms, SubmitBody, UpstreamJob
from taskmq.api.jobs import ChangedJob, SubmittedJob
from taskmq.contracts.jobs import JobRecord
from taskmq.operations.job_orders import JobOrder, SubmitOutcome
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.tasks.job_options import DefinitionOptions, JobOptions

_PRIORITIES: Final = {"high": 8, "medium": 4, "low": 1}
_TEMPLATE_NAMES: Final = tuple(DefinitionOptions.__annotations__.keys() & set(JobTerms.__struct_fields__))


def priority_number(level: str | int | None) -> int | None:
    """Return the number of a priority given as a word or number."""
    return _PRIORITIES[level] if isinstance(level, str) else level


def options_of(body: JobTerms) -> DefinitionOptions:
    """Return the options that a body gives, as `app.definitions.put` takes them."""
    place = body.place or PlaceTerms()
    given: dict[str, Any] = {name: getattr(body, name) for name in _TEMPLATE_NAMES} | {
        "priority": priority_number(body.priority),
        "expires": body.expires_in,
        "retry": None if body.retry is None else structs.asdict(body.retry),
        "place": _without_empty({**structs.asdict(place), "labels": {**body.node_labels, **place.labels}}),
    }
    return cast("DefinitionOptions", _without_empty(given))


def order_of(body: SubmitBody, *, job_id: str | None = None) -> JobOrder:
    """Build the order from a body whose fields do not exclude each other.

    Args:
        job_id: the id to use if the body has none.
    """
    given: dict[str, Any] = {
        **options_of(body),
        "held": body.held,
        "delay": body.delay,
        "order_key": body.order_key,
        "idempotency_key": body.idempotency_key,
        "meta": body.meta or None,
        "eta": body.schedule_time,
        "job_id": job_id if body.job_id is None else body.job_id,
        "depends_on": [
            (each.job_id, each.condition) if isinstance(each, UpstreamJob) else each for each in body.depends_on
        ],
    }
    if body.expires_at is not None:
        given["expires"] = body.expires_at
    kwargs = body.kwargs if body.payload is None else body.payload
    options = cast("JobOptions", {name: value for name, value in given.items() if value is not None})
    return JobOrder(body.job_type or body.task or "", body.args or [], kwargs or {}, options)


def submitted_job(outcome: SubmitOutcome) -> SubmittedJob:
    """Build the response about a submitted job."""
    return SubmittedJob(status="submitted", **outcome._asdict())


def changed_view(jobs: TenantJobs, status: str, record: JobRecord) -> ChangedJob:
    """Build the response about a changed job."""
    return ChangedJob(
        status=status,
        job_id=jobs.name_of(record),
        id=record.id,
        state=record.state,
        version=record.version,
        reattached=record.reattached,
    )


def _without_empty(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value not in (None, "", {})}
