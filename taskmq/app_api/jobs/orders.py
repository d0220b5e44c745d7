"""Conversion of submission bodies to orders, and of their outcomes to responses."""

from typing import Any, Final, cast

from taskmq.api.job_requests import SubmitBody, UpstreamJob
from taskmq.api.jobs import SubmittedJob
from taskmq.operations.tenant_jobs import JobOrder, SubmitOutcome
from taskmq.tasks.job_options import JobOptions

__all__ = ["order_of", "priority_number", "submitted_job"]

_PRIORITIES: Final = {"high": 8, "medium": 4, "low": 1}
_SAME_NAMES: Final = tuple(name for name in SubmitBody.__struct_fields__ if name in JobOptions.__annotations__)


def priority_number(level: str | int | None) -> int | None:
    """Return the number of a priority given as a word or number."""
    return _PRIORITIES[level] if isinstance(level, str) else level


def order_of(body: SubmitBody, *, job_id: str | None = None) -> JobOrder:
    """Build the order from a body whose fields do not exclude each other.

    Args:
        job_id: the id to use if the body has none.
    """
    given: dict[str, Any] = {name: getattr(body, name) for name in _SAME_NAMES} | {
        "job_id": job_id if body.job_id is None else body.job_id,
        "eta": body.schedule_time,
        "priority": priority_number(body.priority),
        "expires": body.expires_in if body.expires_at is None else body.expires_at,
        "place": {"labels": body.node_labels},
        "depends_on": [
            (each.job_id, each.condition) if isinstance(each, UpstreamJob) else each for each in body.depends_on
        ],
    }
    options = cast("JobOptions", {name: value for name, value in given.items() if value is not None})
    kwargs = body.kwargs if body.payload is None else body.payload
    return JobOrder(body.job_type or body.task or "", body.args or [], kwargs or {}, options)


def submitted_job(outcome: SubmitOutcome) -> SubmittedJob:
    """Build the response about a submitted job."""
    return SubmittedJob(status="submitted", **outcome._asdict())
