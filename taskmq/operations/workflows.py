"""Running workflows: report, cancel and redrive them."""

from typing import Any

import msgspec

from taskmq.app import TaskMQ
from taskmq.client.producer import AppServices
from taskmq.errors import FlowNotFound
from taskmq.workflow.handle import Flow, FlowStateName, FlowStep
from taskmq.workflow.service import Redriven, WorkflowService

__all__ = [
    "WorkflowReport",
    "cancel_workflow",
    "flow_of",
    "redrive_workflow",
    "report_workflow",
]


class WorkflowReport(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a workflow.

    Attributes:
        state: `failed` if a step failed that was not allowed to fail.
        cancelled: why it was cancelled; None if it was not.
        steps: its steps in the order of the graph.
    """

    id: str
    state: FlowStateName
    cancelled: str | None
    steps: list[FlowStep]


def flow_of(app: TaskMQ, flow_id: str) -> Flow[Any]:
    """Return the handle of a flow in the app's state."""
    return Flow(flow_id, service=_service(app))


def _service(app: TaskMQ) -> WorkflowService:
    return WorkflowService(AppServices(app.producer, app.jobs, app.tasks.dependencies))


async def report_workflow(app: TaskMQ, flow_id: str) -> WorkflowReport:
    """Report on a workflow and each of its steps.

    Raises:
        FlowNotFound: the state does not know the workflow, or no longer.
        StateUnavailable: the state could not be reached.
        UnsupportedFeature: the app has no state.
    """
    flow = flow_of(app, flow_id)
    steps = await flow.asteps()
    # Read after the steps: if the workflow has ended, the steps show as ended unless it was redriven.
    state = await flow.astate()
    return WorkflowReport(id=flow_id, state=state.state, cancelled=state.cancelled, steps=steps)


async def cancel_workflow(app: TaskMQ, flow_id: str, *, reason: str) -> bool:
    """Cancel a workflow. Returns False if it has already ended. Raises the errors of `Flow.cancel`."""
    return await flow_of(app, flow_id).acancel(reason)


async def redrive_workflow(app: TaskMQ, flow_id: str) -> Redriven:
    """Run the steps again that did not succeed, and remove the dead letters of their earlier runs.

    Raises:
        FlowNotFound: the state does not know the workflow, or no longer.
        SendError, StateUnavailable: see `send`; calling it again continues.
        UnsupportedFeature: the app has no state.
    """
    service = _service(app)
    if await service.flow_store().look(flow_id) is None:
        raise FlowNotFound(f"workflow {flow_id} is unknown: it was never sent to this state, or has expired")
    return await service.redrive(flow_id)
