"""Workflows in the state, for tests of the engine there."""

from typing import Any

from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.client.producer import AppServices
from taskmq.workflow.batch import Batch
from taskmq.workflow.handle import Flow
from taskmq.workflow.model.graph_builder import GraphBuilder
from taskmq.workflow.parts import Workflow
from taskmq.workflow.service import WorkflowService

__all__ = ["flow_of", "send_to_state"]

_WEEK = 7 * 86_400.0


def flow_of(app: TaskMQ, flow_id: str) -> Flow[Any]:
    """Return the handle of a workflow in the state of an app."""
    return Flow(flow_id, service=WorkflowService(AppServices(app.producer, app.jobs, app.tasks.dependencies)))


async def send_to_state(
    workflow: Workflow[Any], *, flow_id: str | None = None, tenant: str | None = None, name: str | None = None
) -> Flow[Any]:
    """Start a workflow in the state of its app; return its handle."""
    first = workflow.first_task()
    assert first is not None
    services: AppServices = first.services
    service = WorkflowService(services)
    graph = workflow.compile(service.content_type, tenant=tenant or "")
    graph.head = replace(graph.head, name=name or first.name)
    sent = await service.start(graph, flow_id=flow_id, keep=_WEEK, tenant=tenant)
    flow: Flow[Any] = Flow(sent, service=service, shape=graph.shape, names=graph.names)
    if isinstance(workflow, Batch) and workflow.jobs:
        builder = GraphBuilder(service.content_type, tenant=tenant or "")
        await service.append(sent, [builder.child(job.call) for job in workflow.jobs], name="/")
    return flow
