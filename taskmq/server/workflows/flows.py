"""`/flows`: list, inspect, cancel, close and redrive workflows."""

from typing import Annotated, Any, Final

from litestar import get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.workers import CancelFlowBody, FlowList, FlowReportView
from taskmq.errors import InvalidOption
from taskmq.model.identity import Permission
from taskmq.server.history.inputs import Since, Until
from taskmq.server.inputs import ApiGiven, Cursor, Limit
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.workflow.handle import FlowStateName
from taskmq.workflow.service import Redriven
from taskmq.workflow.workflows import read_states

__all__ = ["FLOWS"]


@get(
    f"{API}/flows",
    permission=Permission.WORKFLOWS_READ,
    operation_id="listFlows",
    summary="List workflows",
    tags=["workflows"],
)
async def list_all(
    api: ApiGiven,
    name: Annotated[str | None, QueryParameter(description="Workflow name, with `*` and `?`.")] = None,
    states: Annotated[str, QueryParameter(description="Comma-separated states.")] = "",
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> FlowList:
    """Return a tenant's workflows sent in a period, newest first; for an instance role, all tenants'.

    Filters by name and state examine a limited number per page; a page with `is_bounded` still has a `next`.
    """
    chosen = sorted(_states(states))
    try:
        return await api.flows.page(name=name, states=chosen, since=since, until=until, limit=limit, cursor=cursor)
    except InvalidOption as error:
        raise Problem.about(
            "cursor", f"{(cursor or '')[:40]!r} is not a cursor", "`next` of the previous page"
        ) from error


@get(
    f"{API}/flows/{{workflow_id:str}}",
    permission=Permission.WORKFLOWS_READ,
    operation_id="getFlow",
    summary="Get a workflow",
    tags=["workflows"],
)
async def get_workflow(api: ApiGiven, workflow_id: FromPath[str]) -> FlowReportView:
    """Return a workflow with the state of each step."""
    return await api.flows.get(workflow_id)


@post(
    f"{API}/flows/{{workflow_id:str}}/cancel",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="cancelFlow",
    summary="Cancel a workflow",
    tags=["workflows"],
)
async def cancel(
    api: ApiGiven, workflow_id: FromPath[str], data: JSONBody[CancelFlowBody | None] = None
) -> dict[str, str]:
    """Cancel a workflow: steps that have not started never will, and running ones are stopped. 409: it has ended."""
    await api.flows.cancel(workflow_id, reason=None if data is None else data.reason)
    return {"status": "cancelled", "workflow_id": workflow_id}


@post(
    f"{API}/flows/{{workflow_id:str}}/close",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="closeFlow",
    summary="Close a batch",
    tags=["workflows"],
)
async def close(api: ApiGiven, workflow_id: FromPath[str]) -> dict[str, str]:
    """Close a batch to new jobs. It ends when its jobs have ended. 409: it is cancelled, or not a batch."""
    await api.flows.close(workflow_id)
    return {"status": "closed", "workflow_id": workflow_id}


@post(
    f"{API}/flows/{{workflow_id:str}}/redrive",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="redriveFlow",
    summary="Redrive a workflow",
    tags=["workflows"],
)
async def redrive(api: ApiGiven, workflow_id: FromPath[str]) -> Redriven:
    """Run failed steps again, and remove the dead letters of their earlier runs."""
    return await api.flows.redrive(workflow_id)


FLOWS: Final[tuple[Any, ...]] = (list_all, get_workflow, cancel, close, redrive)


def _states(text: str) -> frozenset[FlowStateName]:
    try:
        return read_states(text)
    except InvalidOption as error:
        raise Problem.about("states", str(error)) from error
