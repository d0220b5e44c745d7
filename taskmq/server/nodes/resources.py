"""`/resources`: allocations for other systems, and their usage, at the API's original paths."""

from typing import Annotated, Final

from litestar.params import JSONBody, QueryParameter

from taskmq.api.nodes import AllocateBody, AllocationView, ReleaseBody, UsageView
from taskmq.api.values import Instant
from taskmq.model.identity import Permission
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, Cursor, Limit
from taskmq.server.nodes.amounts import read_wanted
from taskmq.server.problems import Problem

RESOURCE_HANDLERS: Final = Handlers("compatible names")

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
async def allocate(data: JSONBody[AllocateBody], api: ApiGiven) -> AllocationView:
    """Allocate resources of a node for use outside taskmq. Jobs placed there leave them free."""
    named = {"cpu": data.cpu, "memory": data.memory, "storage": data.storage, "gpu": data.gpu}
    amounts = read_wanted({**named, **data.resources})
    if not amounts:
        raise Problem.about("cpu", "give at least one amount: cpu, memory, storage, gpu or resources")
    node = None if data.node_id == "any" else data.node_id
    return await api.resources.allocate(amounts, node_id=node, job_id=data.job_id, ttl=data.ttl_seconds)


@RESOURCE_HANDLERS.handle(
    "POST /resources/release",
    "releaseResourcesCompat",
    Permission.RESOURCES_ALLOCATE,
    "Release an allocation",
    is_compatible=True,
    repeats=True,
)
async def release(data: JSONBody[ReleaseBody], api: ApiGiven) -> AllocationView:
    """Release an allocation made with this API. A released one stays unchanged."""
    return await api.resources.release(data.allocation_id)


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
