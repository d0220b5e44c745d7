"""Host nodes, and what is allocated of them."""

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
from taskmq.http.aio.connection import AsyncHttpConnection

__all__ = ["AsyncNodeCalls", "AsyncResourceCalls"]


class AsyncNodeCalls:
    """Host nodes, by their names or ids."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def list(self) -> Sequence[HostNodeView]:
        """All nodes, by name."""
        return (await self._connection.ask("listNodes", NodeList)).items

    async def get(self, name: str) -> HostNodeView:
        """Return one host node by its name."""
        return await self._connection.ask("getNode", HostNodeView, path={"name": name})

    async def drain(self, name: str) -> HostNodeView:
        """Place nothing more there; what runs goes on."""
        return await self._connection.ask("drainNode", HostNodeView, path={"name": name})

    async def resume(self, name: str) -> HostNodeView:
        """Place jobs there again."""
        return await self._connection.ask("resumeNode", HostNodeView, path={"name": name})

    async def remove(self, name: str) -> HostNodeView:
        """Forget a node; the node as it was."""
        return await self._connection.ask("removeNode", HostNodeView, path={"name": name})

    async def register(self, body: RegisterBody) -> RegisteredView:
        """Make a node known that no worker reports."""
        return await self._connection.ask("registerNodeOfDocument", RegisteredView, body=body)

    async def tell(self, node_id: str, status: Literal["available", "busy", "draining"]) -> RegisteredView:
        """Say how a node is: its heartbeat."""
        body = StatusBody(node_id=node_id, status=status)
        return await self._connection.ask("updateNodeStatusOfDocument", RegisteredView, body=body)


class AsyncResourceCalls:
    """Parts of nodes that were reserved by hand, beside the jobs that the scheduler places."""

    def __init__(self, connection: AsyncHttpConnection) -> None:
        self._connection = connection

    async def allocate(self, body: AllocateBody) -> AllocationView:
        """Take a part of a node, until it is released or its time is over."""
        return await self._connection.ask("allocateResourcesOfDocument", AllocationView, body=body)

    async def release(self, allocation_id: str) -> AllocationView:
        """End an allocation: what it held is free for others once this returns."""
        body = ReleaseBody(allocation_id=allocation_id)
        return await self._connection.ask("releaseResourcesOfDocument", AllocationView, body=body)

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
        """What was allocated, and what is."""
        query = {
            "node_id": node_id,
            "job_id": job_id,
            "is_open": is_open,
            "since": since,
            "until": until,
            "limit": limit,
            "cursor": cursor,
        }
        return await self._connection.ask("getResourceUsageOfDocument", UsageView, query=query)
