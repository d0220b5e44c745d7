# Generated from taskmq/http/aio/nodes.py by `python -m tests.house.blocking_client`: change that one.
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
from taskmq.http._generated.connection import Calls


class NodeCalls(Calls):
    """Host nodes, by name or id."""

    def list(self) -> Sequence[HostNodeView]:
        """List all nodes and the hosts of all workers, as of their last heartbeats, ordered by name."""
        return (self._connection.ask("listNodes", NodeList)).items

    def get(self, name: str) -> HostNodeView:
        """Return a node by its name or id, or a host with workers by its name."""
        return self._connection.ask("getNode", HostNodeView, path={"name": name})

    def drain(self, name: str) -> HostNodeView:
        """Stop placing jobs on a node. Running jobs continue."""
        return self._connection.ask("drainNode", HostNodeView, path={"name": name})

    def resume(self, name: str) -> HostNodeView:
        """Resume placing jobs on a node."""
        return self._connection.ask("resumeNode", HostNodeView, path={"name": name})

    def remove(self, name: str) -> HostNodeView:
        """Remove a node. Returns its last state."""
        return self._connection.ask("removeNode", HostNodeView, path={"name": name})

    def register(self, body: RegisterBody) -> RegisteredView:
        """Register a node that no worker reports."""
        return self._connection.ask("registerNodeCompat", RegisteredView, body=body)

    def update_status(self, node_id: str, status: Literal["available", "busy", "draining"]) -> RegisteredView:
        """Set a node's status; each call is a heartbeat."""
        body = StatusBody(node_id=node_id, status=status)
        return self._connection.ask("updateNodeStatusCompat", RegisteredView, body=body)


class ResourceCalls(Calls):
    """Allocations of node resources made by callers, in addition to placed jobs."""

    def allocate(self, body: AllocateBody) -> AllocationView:
        """Allocate resources of a node until they are released or expire."""
        return self._connection.ask("allocateResourcesCompat", AllocationView, body=body)

    def release(self, allocation_id: str) -> AllocationView:
        """Release an allocation. Its resources are available to others once this returns."""
        body = ReleaseBody(allocation_id=allocation_id)
        return self._connection.ask("releaseResourcesCompat", AllocationView, body=body)

    def usage(
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
        return self._connection.ask("getResourceUsageCompat", UsageView, query=query)
