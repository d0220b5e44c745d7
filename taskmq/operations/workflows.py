"""Workflows that were sent: how far they are, ending them, and running again what has failed."""

import msgspec

from taskmq.app import TaskMQ
from taskmq.client.producer import AppServices
from taskmq.errors import FlowNotFound
from taskmq.workflow.handle import FlowStateName, FlowStep
from taskmq.workflow.service import Redriven, WorkflowService

__all__ = [
    "WorkflowReport",
    "cancel_workflow",
    "redrive_workflow",
    "report_workflow",
]


class WorkflowReport(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow at one moment.

    Attributes:
        state: `failed` where a step has failed that was not allowed to.
        cancelled: why it was cancelled; None when it was not.
        steps: in the order of the graph.
    """

    id: str
    state: FlowStateName
    cancelled: str | None
    steps: list[FlowStep]


async def report_workflow(app: TaskMQ, flow_id: str) -> WorkflowReport:
    """How far a workflow is, step by step.

    Raises:
        FlowNotFound: the state does not know it (any more).
        StateUnavailable: the state could not be reached.
        UnsupportedFeature: the app has no state.
    """
    flow = app.flow(flow_id)
    steps = await flow.asteps()
    # After the steps: where it says that it has ended, all of them show as ended, or were driven anew.
    state = await flow.astate()
    return WorkflowReport(id=flow_id, state=state.state, cancelled=state.cancelled, steps=steps)


async def cancel_workflow(app: TaskMQ, flow_id: str, *, reason: str) -> bool:
    """End a workflow; False where it has ended already. See `Flow.cancel`, also for what is raised."""
    return await app.flow(flow_id).acancel(reason)


async def redrive_workflow(app: TaskMQ, flow_id: str) -> Redriven:
    """Run again what has not succeeded, and take the dead letters of its earlier runs off their queues.

    Raises:
        FlowNotFound: the state does not know it (any more).
        SendError, StateUnavailable: as `send` does; called again, it goes on.
        UnsupportedFeature: the app has no state.
    """
    service = WorkflowService(AppServices(app.producer, app.jobs, app.tasks.dependencies))
    if await service.flow_store().look(flow_id) is None:
        raise FlowNotFound(f"workflow {flow_id} is not known: never sent here, or forgotten since")
    return await service.redrive(flow_id)
