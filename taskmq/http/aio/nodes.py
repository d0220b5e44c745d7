"""Host nodes and resource allocations."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from taskmq.api.nodes import (
    AllocateBody,
    AllocationView,
    HostNodeView,
    NodeList,
    RegisterBody,
    RegisteredView,
    ReleaseBody,
    StatusBody,
    UsageView,
)
from taskmq.http.aio.connection import AsyncCalls


class AsyncNodeCalls(AsyncCalls):
    """Host nodes, by name or id."""

    async def list(self) -> Sequence[HostNodeView]:
        """List all nodes and the hosts of all workers, as of their last heartbeats, ordered by name."""
        return (await self._connection.ask("listNodes", NodeList)).items

    async def get(self, name: str) -> HostNodeView:
        """Return a node by its name or id, or a host with workers by its name."""
        return await self._connection.ask("getNode", HostNodeView, path={"name": name})

    async def drain(self, name: str) -> HostNodeView:
        """Stop placing jobs on a node. Running jobs continue."""
        return await self._connection.ask("drainNode", HostNodeView, path={"name": name})

    async def resume(self, name: str) -> HostNodeView:
        """Resume placing jobs on a node."""
        return await self._connection.ask("resumeNode", HostNodeView, path={"name": name})

    async def remove(self, name: str) -> HostNodeView:
        """Remove a node. Returns its last state."""
        return await self._connection.ask("removeNode", HostNodeView, path={"name": name})

    async def register(self, body: RegisterBody) -> RegisteredView:
        """Register a node that no worker reports."""
        return await self._connection.ask("registerNodeCompat", RegisteredView, body=body)

    async def update_status(self, node_id: str, status: Literal["available", "busy", "draining"]) -> RegisteredView:
        """Set a node's status; each call is a heartbeat."""
        body = StatusBody(node_id=node_id, status=status)
        return await self._connection.ask("updateNodeStatusCompat", RegisteredView, body=body)


class AsyncResourceCalls(AsyncCalls):
    """Allocations of node resources made by callers, in addition to placed jobs."""

    async def allocate(self, body: AllocateBody) -> AllocationView:
        """Allocate resources of a node until they are released or expire."""
        return await self._connection.ask("allocateResourcesCompat", AllocationView, body=body)

    async def release(self, allocation_id: str) -> AllocationView:
        """Release an allocation. Its resources are available to others once this returns."""
        body = ReleaseBody(allocation_id=allocation_id)
        return await self._connection.ask("releaseResourcesCompat", AllocationView, body=body)

    async def usage(
        self,
        *,
        node_id: str | None = None,
        job_id: str | None = None,
        is_open: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> UsageView:
        """Return past and current allocations, with totals."""
        query = {
            "node_id": node_id,
            "job_id": job_id,
            "is_open": is_open,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._connection.ask("getResourceUsageCompat", UsageView, query=query)
