"""`/resources`: allocations for other systems, and their usage, at the API's original paths."""

from typing import Annotated, Final

from litestar.params import JSONBody, QueryParameter

from taskmq.api.nodes import AllocateBody, AllocationView, ReleaseBody, UsageView
from taskmq.api.values import Instant
from taskmq.app_api.nodes import allocation_view, found_node, ids_of_nodes
from taskmq.model.identity import Permission
from taskmq.operations import nodes as operations
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, Cursor, Limit, ServedApp
from taskmq.server.nodes.amounts import read_wanted
from taskmq.server.problems import Problem

RESOURCE_HANDLERS: Final = Handlers("compatible names")

_ANY: Final = "any"

_NodeName = Annotated[
    str | None, QueryParameter(description="Only allocations of this node, by name or id.", max_length=255)
]
_JobName = Annotated[str | None, QueryParameter(description="Only allocations with this job id.", max_length=255)]
_TenantName = Annotated[str | None, QueryParameter(description="Only allocations of this tenant.", max_length=255)]
_IsOpen = Annotated[bool, QueryParameter(description="Only allocations that have not ended.")]
_Since = Annotated[Instant | None, QueryParameter(description="At or after this time.")]
_Until = Annotated[Instant | None, QueryParameter(description="Before this time.")]


@RESOURCE_HANDLERS.handle(
    "POST /resources/allocate",
    "allocateResourcesCompat",
    Permission.RESOURCES_ALLOCATE,
    "Allocate resources of a node",
    status_code=201,
    is_compatible=True,
)
async def allocate(data: JSONBody[AllocateBody], app: ServedApp, caller: CallerGiven) -> AllocationView:
    """Allocate resources of a node for use outside taskmq. Jobs placed there leave them free."""
    named = {"cpu": data.cpu, "memory": data.memory, "storage": data.storage, "gpu": data.gpu}
    amounts = read_wanted({**named, **data.resources})
    if not amounts:
        raise Problem.about("cpu", "give at least one amount: cpu, memory, storage, gpu or resources")
    node = None
    if data.node_id != _ANY:
        node = found_node(data.node_id, await operations.find_node(app, data.node_id)).name
    await caller.note_action(app, "resources.allocate", subject=node or _ANY, after=dict(amounts))
    made = await operations.allocate(
        app, amounts, node=node, job=data.job_id, tenant=caller.tenant or "", ttl=data.ttl_seconds
    )
    if made is None:
        where = "no available node has" if node is None else f"node {node} does not have"
        raise Problem(409, "no_capacity", f"{where} enough free resources: see GET /api/v1/nodes")
    return allocation_view(made, await ids_of_nodes(app))


@RESOURCE_HANDLERS.handle(
    "POST /resources/release",
    "releaseResourcesCompat",
    Permission.RESOURCES_ALLOCATE,
    "Release an allocation",
    is_compatible=True,
)
async def release(data: JSONBody[ReleaseBody], app: ServedApp, caller: CallerGiven) -> AllocationView:
    """Release an allocation made with this API. A released one stays unchanged."""
    await caller.note_action(app, "resources.release", subject=data.allocation_id)
    found = await operations.release(app, data.allocation_id)
    if found is None:
        raise Problem(
            404,
            "allocation_not_found",
            f"allocation {data.allocation_id[:64]!r} not found, or not made with this API",
        )
    return allocation_view(found, await ids_of_nodes(app))


@RESOURCE_HANDLERS.handle(
    "GET /resources/usage", "getResourceUsageCompat", Permission.POOLS_READ, "Get resource usage", is_compatible=True
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
    """Return allocations by node, job, tenant and period, with totals."""
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
