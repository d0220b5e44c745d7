"""Host nodes and resource allocations."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from taskmq.api.nodes import AllocationView, HostNodeView, UsageView
from taskmq.app import TaskMQ
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, milliseconds_of, render_all
from taskmq.errors import RequestRefused
from taskmq.model.nodes import Allocation, AllocationFilter, HostNode, NodeTold
from taskmq.operations import nodes as operations

N = TypeVar("N")


class AppNodes(AppCalls):
    """Host nodes, by name or id.

    Raises:
        RequestRefused: `node_not_found`: no node has the name or id; raised by all methods.
            `node_without_resources`: a host whose workers offer none; raised by `drain`, `resume` and `remove`.
    """

    async def list(self) -> Sequence[HostNodeView]:
        """List all nodes and the hosts of all workers, as of their last heartbeats, ordered by name."""
        return render_all(_view, await operations.list_hosts(self._app))

    async def get(self, name: str) -> HostNodeView:
        """Return one node by its name or id, or one host with workers by its name."""
        found = [node for node in await self.list() if name in (node.name, node.node_id)]
        return found_node(name, found[0] if found else None)

    async def drain(self, name: str) -> HostNodeView:
        """Stop placing jobs on a node. Running jobs continue."""
        node = await _find(self._app, name)
        await self._caller.note_action(self._app, "node.drain", subject=node.name)
        return _alone(found_node(name, await operations.drain_node(self._app, node.name)))

    async def resume(self, name: str) -> HostNodeView:
        """Resume placing jobs on a node."""
        node = await _find(self._app, name)
        await self._caller.note_action(self._app, "node.resume", subject=node.name)
        return _alone(found_node(name, await operations.drain_node(self._app, node.name, drains=False)))

    async def remove(self, name: str) -> HostNodeView:
        """Remove a node and release its allocations. A node with running workers registers again."""
        node = await _find(self._app, name)
        await self._caller.note_action(self._app, "node.remove", subject=node.name)
        return _alone(found_node(name, await operations.remove_node(self._app, node.name)))


class AppResources(AppCalls):
    """Allocations of host nodes, for jobs and by callers."""

    async def usage(
        self,
        *,
        node_id: str | None = None,
        job_id: str | None = None,
        of_tenant: str | None = None,
        is_open: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> UsageView:
        """Return allocations by node, job, tenant and period, with totals."""
        node = None
        if node_id is not None:
            found = await operations.find_node(self._app, node_id)
            node = node_id if found is None else found.name
        which = AllocationFilter(
            node=node,
            job=job_id,
            tenant=of_tenant,
            since=None if since is None else milliseconds_of(since),
            until=None if until is None else milliseconds_of(until),
            is_open=is_open,
        )
        total = await operations.sum_usage(self._app, which)
        page = await operations.list_allocations(self._app, which, after=cursor or None, limit=limit + 1)
        ids = await ids_of_nodes(self._app)
        return UsageView(
            hours={name: round(amount, 6) for name, amount in total.hours.items()},
            allocations=total.allocations,
            is_bounded=total.is_bounded,
            items=render_all(lambda each: allocation_view(each, ids), page[:limit]),
            next=page[limit - 1].id if len(page) > limit else None,
        )


async def _find(app: TaskMQ, name: str) -> HostNode:
    """Return the node of the store with this name or id.

    Raises:
        RequestRefused: `node_without_resources`: it is only a host whose workers offer no resources.
    """
    has_store = app.sessions.current().store is not None
    node = await operations.find_node(app, name) if has_store else None
    if node is None and any(host.name == name for host in await operations.list_hosts(app)):
        raise RequestRefused(
            f"node {name[:128]!r} has no resources, so no jobs are placed on it; to drain its workers, use "
            f"`taskmq worker control drain --host {name[:128]}`",
            status=409,
            code="node_without_resources",
        )
    return found_node(name, node)


def found_node(name: str, node: N | None) -> N:
    """Return the node, if it exists.

    Raises:
        RequestRefused: it does not exist.
    """
    if node is None:
        raise RequestRefused(f"node {name[:128]!r} not found", status=404, code="node_not_found")
    return node


def _alone(node: HostNode) -> HostNodeView:
    return _view(operations.HostWorkers(node.name, node))


def _view(host: operations.HostWorkers) -> HostNodeView:
    node, workers = host.node or _describe_host(host), host.workers
    told = node.told
    return HostNodeView(
        node_id=node.id,
        name=node.name,
        ip_address=told.address,
        status=node.state,
        capacity=told.capacity,
        used=node.used,
        labels=told.labels,
        version=told.version,
        app_versions=sorted({each.app_version for each in workers if each.app_version}),
        runs_jobs=told.runs_jobs,
        epoch=node.epoch,
        registered_at=instant_text(node.registered),
        heartbeat_at=instant_text(node.heartbeat),
        workers=[each.name for each in workers],
        queues=sorted({queue for each in workers for queue in each.queues}),
        slots=sum(each.slots for each in workers),
        running=sum(each.running for each in workers),
    )


def _describe_host(host: operations.HostWorkers) -> HostNode:
    """Return a host whose workers offer no resources as a node."""
    workers = host.workers or host.silent
    return HostNode(
        id=host.name,
        told=NodeTold(name=host.name, version=max(each.version for each in workers)),
        epoch=0,
        registered=min(each.started for each in workers),
        heartbeat=max(each.at for each in workers),
        is_busy=all(each.running >= each.slots for each in workers),
        is_draining=all(each.state == "draining" for each in workers),
        is_lost=not host.workers,
    )


async def ids_of_nodes(app: TaskMQ) -> dict[str, str]:
    """Return the ids of all nodes by name."""
    return {each.name: each.id for each in await operations.list_nodes(app)}


def allocation_view(allocation: Allocation, ids: dict[str, str]) -> AllocationView:
    """Build the API's view of an allocation."""
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
