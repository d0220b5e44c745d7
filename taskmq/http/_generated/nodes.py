# Generated from taskmq/http/aio/nodes.py by `python -m tests.house.blocking_client`: change that one.
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
from taskmq.http._generated.connection import HttpConnection

__all__ = ["NodeCalls", "ResourceCalls"]


class NodeCalls:
    """Host nodes, by their names or ids."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def list(self) -> Sequence[HostNodeView]:
        """All nodes, by name."""
        return (self._connection.ask("listNodes", NodeList)).items

    def get(self, name: str) -> HostNodeView:
        """Return one host node by its name."""
        return self._connection.ask("getNode", HostNodeView, path={"name": name})

    def drain(self, name: str) -> HostNodeView:
        """Place nothing more there; what runs goes on."""
        return self._connection.ask("drainNode", HostNodeView, path={"name": name})

    def resume(self, name: str) -> HostNodeView:
        """Place jobs there again."""
        return self._connection.ask("resumeNode", HostNodeView, path={"name": name})

    def remove(self, name: str) -> HostNodeView:
        """Forget a node; the node as it was."""
        return self._connection.ask("removeNode", HostNodeView, path={"name": name})

    def register(self, body: RegisterBody) -> RegisteredView:
        """Make a node known that no worker reports."""
        return self._connection.ask("registerNodeOfDocument", RegisteredView, body=body)

    def tell(self, node_id: str, status: Literal["available", "busy", "draining"]) -> RegisteredView:
        """Say how a node is: its heartbeat."""
        body = StatusBody(node_id=node_id, status=status)
        return self._connection.ask("updateNodeStatusOfDocument", RegisteredView, body=body)


class ResourceCalls:
    """Parts of nodes that were reserved by hand, beside the jobs that the scheduler places."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def allocate(self, body: AllocateBody) -> AllocationView:
        """Take a part of a node, until it is released or its time is over."""
        return self._connection.ask("allocateResourcesOfDocument", AllocationView, body=body)

    def release(self, allocation_id: str) -> AllocationView:
        """End an allocation: what it held is free for others once this returns."""
        body = ReleaseBody(allocation_id=allocation_id)
        return self._connection.ask("releaseResourcesOfDocument", AllocationView, body=body)

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
        return self._connection.ask("getResourceUsageOfDocument", UsageView, query=query)
