"""`/workflows`: which there are, how far they are, ending them, and running again what has failed."""

from typing import Annotated, Any, Final

from litestar import get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.workers import CancelFlowBody, WorkflowList, WorkflowView
from taskmq.errors import InvalidOption
from taskmq.model.identity import Permission
from taskmq.server.history.inputs import Since, Until
from taskmq.server.inputs import ApiGiven, Cursor, Limit
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.workflow.handle import FlowStateName
from taskmq.workflow.service import Redriven
from taskmq.workflow.workflows import read_states

__all__ = ["WORKFLOW_HANDLERS"]


@get(
    f"{API}/workflows",
    permission=Permission.WORKFLOWS_READ,
    operation_id="listWorkflows",
    summary="List workflows",
    tags=["workflows"],
)
async def list_all(
    api: ApiGiven,
    name: Annotated[str | None, QueryParameter(description="Its name, with `*` and `?`.")] = None,
    states: Annotated[str, QueryParameter(description="Some of them, with commas between.")] = "",
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> WorkflowList:
    """A tenant's workflows that were sent in a time, the newest first; for a role on the instance everybody's.

    By name and state a bounded number is looked at for each page: one that `is_bounded` has a `next` all the same.
    """
    chosen = sorted(_states(states))
    try:
        return await api.workflows.page(
            name=name, states=chosen, since=since, until=until, limit=limit, cursor=cursor
        )
    except InvalidOption as error:
        raise Problem.about("cursor", f"{(cursor or '')[:40]!r} is no cursor", "`next` of the page before") from error


@get(
    f"{API}/workflows/{{workflow_id:str}}",
    permission=Permission.WORKFLOWS_READ,
    operation_id="getWorkflow",
    summary="Get a workflow",
    tags=["workflows"],
)
async def get_workflow(api: ApiGiven, workflow_id: FromPath[str]) -> WorkflowView:
    """How far a workflow is, step by step."""
    return await api.workflows.get(workflow_id)


@post(
    f"{API}/workflows/{{workflow_id:str}}/cancel",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="cancelWorkflow",
    summary="Cancel a workflow",
    tags=["workflows"],
)
async def cancel(
    api: ApiGiven, workflow_id: FromPath[str], data: JSONBody[CancelFlowBody | None] = None
) -> dict[str, str]:
    """End a workflow: what has not started never will, what runs is stopped. 409: it has ended already."""
    await api.workflows.cancel(workflow_id, reason=None if data is None else data.reason)
    return {"status": "cancelled", "workflow_id": workflow_id}


@post(
    f"{API}/workflows/{{workflow_id:str}}/close",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="closeWorkflow",
    summary="Close a batch",
    tags=["workflows"],
)
async def close(api: ApiGiven, workflow_id: FromPath[str]) -> dict[str, str]:
    """Have no more jobs come to a batch: it ends when those that it has have ended. 409: cancelled, or no batch."""
    await api.workflows.close(workflow_id)
    return {"status": "closed", "workflow_id": workflow_id}


@post(
    f"{API}/workflows/{{workflow_id:str}}/redrive",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="redriveWorkflow",
    summary="Run again what has failed",
    tags=["workflows"],
)
async def redrive(api: ApiGiven, workflow_id: FromPath[str]) -> Redriven:
    """Run again what has not succeeded, and take the dead letters of its earlier runs off their queues."""
    return await api.workflows.redrive(workflow_id)


WORKFLOW_HANDLERS: Final[tuple[Any, ...]] = (list_all, get_workflow, cancel, close, redrive)


def _states(text: str) -> frozenset[FlowStateName]:
    try:
        return read_states(text)
    except InvalidOption as error:
        raise Problem.about("states", str(error)) from error
