"""`/resources`: parts of nodes for other systems, and what was used, as document 000 names it."""

from typing import Annotated, Any, Final

from litestar import get, post
from litestar.params import JSONBody, QueryParameter

from taskmq.api.nodes import AllocateBody, AllocationView, ReleaseBody, UsageView
from taskmq.model.identity import Permission
from taskmq.model.nodes import Allocation, AllocationFilter
from taskmq.operations import nodes as operations
from taskmq.server.inputs import (
    CallerGiven,
    Cursor,
    Instant,
    Limit,
    ServedApp,
    instant_text,
    milliseconds_of,
    rendered,
)
from taskmq.server.nodes.amounts import read_wanted
from taskmq.server.nodes.hosts import node_or_problem
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
        node = node_or_problem(data.node_id, await operations.find_node(app, data.node_id)).name
    await caller.note_action(app, "resources.allocate", subject=node or _ANY, after=dict(amounts))
    made = await operations.allocate(
        app, amounts, node=node, job=data.job_id, tenant=caller.tenant or "", ttl=data.ttl_seconds
    )
    if made is None:
        where = "no open node has" if node is None else f"node {node} has not"
        raise Problem(409, "no_capacity", f"{where} so much free: GET /api/v1/nodes says what there is")
    return await _view_of(app, made)


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
    return await _view_of(app, found)


@get(
    "/resources/usage",
    permission=Permission.POOLS_READ,
    operation_id="getResourceUsageOfDocument",
    summary="What was allocated",
    tags=["compatible names"],
)
async def get_usage(
    app: ServedApp,
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
    node = None
    if node_id is not None:
        found = await operations.find_node(app, node_id)
        node = node_id if found is None else found.name
    which = AllocationFilter(
        node=node,
        job=job_id,
        tenant=of_tenant,
        since=None if start_time is None else milliseconds_of(start_time),
        until=None if end_time is None else milliseconds_of(end_time),
        is_open=is_open,
    )
    total = await operations.usage(app, which)
    page = await operations.list_allocations(app, which, after=cursor or None, limit=limit + 1)
    ids = {each.name: each.id for each in await operations.list_nodes(app)}
    return UsageView(
        hours={name: round(amount, 6) for name, amount in total.hours.items()},
        allocations=total.allocations,
        is_bounded=total.is_bounded,
        items=rendered(lambda each: _view(each, ids), page[:limit]),
        next=page[limit - 1].id if len(page) > limit else None,
    )


RESOURCE_HANDLERS: Final[tuple[Any, ...]] = (allocate, release, get_usage)


async def _view_of(app: ServedApp, allocation: Allocation) -> AllocationView:
    return _view(allocation, {each.name: each.id for each in await operations.list_nodes(app)})


def _view(allocation: Allocation, ids: dict[str, str]) -> AllocationView:
    return AllocationView(
        allocation_id=allocation.id,
        job_id=allocation.job,
        node_id=ids.get(allocation.node, allocation.node),
        tenant=allocation.tenant,
        task=allocation.task,
        amounts=allocation.amounts,
        status="allocated" if allocation.ended is None else "released",
        start_time=instant_text(allocation.since),
        end_time=instant_text(allocation.ended),
        expires_at=instant_text(allocation.until),
    )
