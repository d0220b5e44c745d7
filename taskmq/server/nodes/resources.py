"""`/resources`: parts of nodes for other systems, and what was used, as document 000 names it."""

from typing import Annotated, Any, Final

from litestar import get, post
from litestar.params import JSONBody, QueryParameter

from taskmq.api.nodes import AllocateBody, AllocationView, ReleaseBody, UsageView
from taskmq.app_api.nodes import allocation_view, found_node, ids_of_nodes
from taskmq.model.identity import Permission
from taskmq.operations import nodes as operations
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Instant, Limit, ServedApp
from taskmq.server.nodes.amounts import read_wanted
from taskmq.server.problems import Problem

__all__ = ["RESOURCE_HANDLERS"]

_ANY: Final = "any"

_NodeName = Annotated[str | None, QueryParameter(description="Of this node, by its name or id.", max_length=255)]
_JobName = Annotated[str | None, QueryParameter(description="Of this job, as it was allocated.", max_length=255)]
_TenantName = Annotated[str | None, QueryParameter(description="Of this tenant.", max_length=255)]
_IsOpen = Annotated[bool, QueryParameter(description="Only those that have not ended.")]
_Since = Annotated[Instant | None, QueryParameter(description="From this instant on.")]
_Until = Annotated[Instant | None, QueryParameter(description="Before this instant.")]


@post(
    "/resources/allocate",
    permission=Permission.RESOURCES_ALLOCATE,
    operation_id="allocateResourcesOfDocument",
    summary="Allocate resources of a node",
    tags=["compatible names"],
)
async def allocate(data: JSONBody[AllocateBody], app: ServedApp, caller: CallerGiven) -> AllocationView:
    """Have a part of a node for something outside of taskmq; the jobs that are placed there leave it alone."""
    named = {"cpu": data.cpu, "memory": data.memory, "storage": data.storage, "gpu": data.gpu}
    amounts = read_wanted({**named, **data.resources})
    if not amounts:
        raise Problem.about("cpu", "say how much of something: cpu, memory, storage, gpu or resources")
    node = None
    if data.node_id != _ANY:
        node = found_node(data.node_id, await operations.find_node(app, data.node_id)).name
    await caller.note_action(app, "resources.allocate", subject=node or _ANY, after=dict(amounts))
    made = await operations.allocate(
        app, amounts, node=node, job=data.job_id, tenant=caller.tenant or "", ttl=data.ttl_seconds
    )
    if made is None:
        where = "no open node has" if node is None else f"node {node} has not"
        raise Problem(409, "no_capacity", f"{where} so much free: GET /api/v1/nodes says what there is")
    return allocation_view(made, await ids_of_nodes(app))


@post(
    "/resources/release",
    status_code=200,
    permission=Permission.RESOURCES_ALLOCATE,
    operation_id="releaseResourcesOfDocument",
    summary="Release an allocation",
    tags=["compatible names"],
)
async def release(data: JSONBody[ReleaseBody], app: ServedApp, caller: CallerGiven) -> AllocationView:
    """End an allocation that was made by hand; one that has ended stays as it is."""
    await caller.note_action(app, "resources.release", subject=data.allocation_id)
    found = await operations.release(app, data.allocation_id)
    if found is None:
        raise Problem(
            404, "allocation_not_found", f"there is no allocation {data.allocation_id[:64]!r} that was made by hand"
        )
    return allocation_view(found, await ids_of_nodes(app))


@get(
    "/resources/usage",
    permission=Permission.POOLS_READ,
    operation_id="getResourceUsageOfDocument",
    summary="What was allocated",
    tags=["compatible names"],
)
async def get_usage(
    api: ApiGiven,
    node_id: _NodeName = None,
    job_id: _JobName = None,
    of_tenant: _TenantName = None,
    start_time: _Since = None,
    end_time: _Until = None,
    is_open: _IsOpen = False,  # noqa: FBT002 - a parameter of the query, by name
    limit: Limit = 50,
    cursor: Cursor = None,
) -> UsageView:
    """Allocations by node, job, tenant and time, and their sums."""
    return await api.resources.usage(
        node_id=node_id,
        job_id=job_id,
        of_tenant=of_tenant,
        is_open=is_open,
        since=start_time,
        until=end_time,
        limit=limit,
        cursor=cursor,
    )


RESOURCE_HANDLERS: Final[tuple[Any, ...]] = (allocate, release, get_usage)
