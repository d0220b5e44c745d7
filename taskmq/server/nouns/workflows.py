"""`/workflows`: which there are, how far they are, ending them, and running again what has failed."""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from litestar import get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from taskmq.api.workers import (
    CancelFlowBody,
    StepView,
    WorkflowLineView,
    WorkflowList,
    WorkflowView,
)
from taskmq.app_api.views import instant_text, rendered
from taskmq.errors import FlowNotFound, InvalidOption, NotPermitted
from taskmq.model.identity import Permission
from taskmq.model.keys import split_tenant_key, tenant_key
from taskmq.operations.workflows import (
    cancel_workflow,
    redrive_workflow,
    report_workflow,
)
from taskmq.server.access import Caller
from taskmq.server.history.inputs import Since, Until
from taskmq.server.inputs import CallerGiven, Cursor, Limit, ServedApp
from taskmq.server.problems import Problem
from taskmq.server.settings import API
from taskmq.workflow.catalogue import WorkflowLine, read_states
from taskmq.workflow.handle import FlowStateName, FlowStep
from taskmq.workflow.service import Redriven

__all__ = ["WORKFLOW_HANDLERS"]

_LONGEST_ID: Final = 255


@get(
    f"{API}/workflows",
    permission=Permission.WORKFLOWS_READ,
    operation_id="listWorkflows",
    summary="List workflows",
    tags=["workflows"],
)
async def list_all(
    app: ServedApp,
    caller: CallerGiven,
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
    chosen = _states(states)
    try:
        page = await app.workflows.alist(
            name=name, states=chosen, tenant=caller.tenant, since=since, until=until, after=cursor, limit=limit
        )
    except InvalidOption as error:
        raise Problem.about("cursor", f"{(cursor or '')[:40]!r} is no cursor", "`next` of the page before") from error
    items = rendered(lambda line: _line(caller, line), page.lines)
    return WorkflowList(items=items, next=page.after, is_bounded=page.is_bounded)


@get(
    f"{API}/workflows/{{workflow_id:str}}",
    permission=Permission.WORKFLOWS_READ,
    operation_id="getWorkflow",
    summary="Get a workflow",
    tags=["workflows"],
)
async def get_workflow(app: ServedApp, caller: CallerGiven, workflow_id: FromPath[str]) -> WorkflowView:
    """How far a workflow is, step by step."""
    found = await report_workflow(app, _full_id(caller, workflow_id))
    return WorkflowView(
        workflow_id=workflow_id,
        tenant=split_tenant_key(found.id)[0],
        state=found.state,
        cancelled=found.cancelled,
        steps=[_step(step) for step in found.steps],
    )


@post(
    f"{API}/workflows/{{workflow_id:str}}/cancel",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="cancelWorkflow",
    summary="Cancel a workflow",
    tags=["workflows"],
)
async def cancel(
    app: ServedApp, caller: CallerGiven, workflow_id: FromPath[str], data: JSONBody[CancelFlowBody | None] = None
) -> dict[str, str]:
    """End a workflow: what has not started never will, what runs is stopped. 409: it has ended already."""
    full_id, reason = _full_id(caller, workflow_id), (data or CancelFlowBody()).reason
    _check_tasks(caller, (await report_workflow(app, full_id)).steps)
    await caller.note_action(app, "workflow.cancel", subject=full_id, note=reason)
    if not await cancel_workflow(app, full_id, reason=reason):
        state = (await report_workflow(app, full_id)).state
        raise Problem(409, "workflow_ended", f"workflow {workflow_id} has ended: it is {state}", state=state)
    return {"status": "cancelled", "workflow_id": workflow_id}


@post(
    f"{API}/workflows/{{workflow_id:str}}/close",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="closeWorkflow",
    summary="Close a batch",
    tags=["workflows"],
)
async def close(app: ServedApp, caller: CallerGiven, workflow_id: FromPath[str]) -> dict[str, str]:
    """Have no more jobs come to a batch: it ends when those that it has have ended. 409: cancelled, or no batch."""
    full_id = _full_id(caller, workflow_id)
    _check_tasks(caller, (await report_workflow(app, full_id)).steps)
    await caller.note_action(app, "workflow.close", subject=full_id)
    await app.flow(full_id).aclose()
    return {"status": "closed", "workflow_id": workflow_id}


@post(
    f"{API}/workflows/{{workflow_id:str}}/redrive",
    status_code=200,
    permission=Permission.WORKFLOWS_OPERATE,
    operation_id="redriveWorkflow",
    summary="Run again what has failed",
    tags=["workflows"],
)
async def redrive(app: ServedApp, caller: CallerGiven, workflow_id: FromPath[str]) -> Redriven:
    """Run again what has not succeeded, and take the dead letters of its earlier runs off their queues."""
    full_id = _full_id(caller, workflow_id)
    _check_tasks(caller, (await report_workflow(app, full_id)).steps)
    await caller.note_action(app, "workflow.redrive", subject=full_id)
    return await redrive_workflow(app, full_id)


WORKFLOW_HANDLERS: Final[tuple[Any, ...]] = (list_all, get_workflow, cancel, close, redrive)


def _check_tasks(caller: Caller, steps: Iterable[FlowStep]) -> None:
    """Refuse a workflow with a step that the caller may not call."""
    if refused := next((step.task for step in steps if step.task and not caller.allows(step.task)), None):
        raise NotPermitted(f"you may not call task {refused!r}, which is one of its steps")


def _full_id(caller: Caller, workflow_id: str) -> str:
    """The id that the state knows it by: that of a tenant's begins with the tenant, and so is unique to it."""
    is_foreign = caller.tenant == "" and split_tenant_key(workflow_id)[0]
    if "\0" in workflow_id or len(workflow_id) > _LONGEST_ID or is_foreign:
        raise FlowNotFound(f"workflow {workflow_id[:_LONGEST_ID]} is not known")
    return tenant_key(caller.tenant or None, workflow_id)


def _states(text: str) -> frozenset[FlowStateName]:
    try:
        return read_states(text)
    except InvalidOption as error:
        raise Problem.about("states", str(error)) from error


def _line(caller: Caller, line: WorkflowLine) -> WorkflowLineView:
    tenant, own_id = split_tenant_key(line.id)
    return WorkflowLineView(
        workflow_id=line.id if caller.tenant is None else own_id,
        name=line.name,
        tenant=tenant,
        state=line.state,
        cancelled=line.cancelled,
        started=instant_text(line.started),
        nodes=line.nodes,
        unfinished=line.unfinished,
    )


def _step(step: FlowStep) -> StepView:
    error = step.error
    return StepView(
        step=step.name,
        task=step.task,
        state=step.state,
        attempts=step.attempts,
        error=None if error is None else f"{error.type_name}: {error.message}",
        after=list(step.after),
        part_of=step.part_of,
    )
