"""Host nodes and resource allocations."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeVar

from taskmq.api.nodes import AllocationView, HostNodeView, RegisteredView, UsageView
from taskmq.app import TaskMQ
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.views import instant_text, milliseconds_of, render_all
from taskmq.contracts.jobs import NodeStore
from taskmq.errors import RequestRefused
from taskmq.model.envelope import new_job_id
from taskmq.model.nodes import (
    LOST_AFTER_MS,
    Allocation,
    AllocationFilter,
    HostNode,
    NewAllocation,
    NodeTold,
    checked_node,
    usage_of,
)
from taskmq.model.resources import Amounts
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.model.units import Duration
from taskmq.operations.workers import list_workers

N = TypeVar("N")

_PAGE: Final = 500
_MOST: Final = 20_000


class HostWorkers(NamedTuple):
    """A node of the store, a host with workers, or both.

    Attributes:
        name: name of the node; of a host whose workers have none, the host's name.
        node: the node as the store has it; None if its workers offer no resources, or the app has no store.
        workers: worker processes on it that reported in the last 35 s; without a store, those that answered.
        silent: worker processes on it whose last report is older, up to ten minutes.
    """

    name: str
    node: HostNode | None
    workers: Sequence[WorkerStatus] = ()
    silent: Sequence[WorkerStatus] = ()


async def list_hosts(app: TaskMQ, *, within: Duration = 1.0) -> list[HostWorkers]:
    """Return the nodes and the hosts of all workers, sorted by name, as the store knows them from heartbeats.

    Without a store, it returns the hosts of the workers that answer within this time.

    Raises:
        StoreUnavailable: the store could not be reached.
        BrokerUnavailable: the app has no store, and the broker could not be reached.
    """
    store = app.sessions.current().store
    if store is None:
        return _group([], [answer.status for answer in await list_workers(app, within=within)], oldest=0)
    nodes, workers, now = await asyncio.gather(store.nodes.nodes(), store.nodes.workers(), store.now_ms())
    return _group(nodes, workers, oldest=now - LOST_AFTER_MS)


def _group(nodes: Sequence[HostNode], statuses: Sequence[WorkerStatus], *, oldest: int) -> list[HostWorkers]:
    by_name = {node.name: node for node in nodes}
    workers: dict[str, list[WorkerStatus]] = defaultdict(list)
    silent: dict[str, list[WorkerStatus]] = defaultdict(list)
    for status in statuses:
        group = workers if status.at > oldest else silent
        group[status.host if status.node is None else status.node.name].append(status)
    names = sorted({*by_name, *workers, *silent})
    return [HostWorkers(name, by_name.get(name), workers.get(name, []), silent.get(name, [])) for name in names]


class _NodeCalls(AppCalls):
    """Calls about the nodes of the store."""

    @property
    def _nodes(self) -> NodeStore:
        return self._app.sessions.store().nodes

    async def _find(self, name: str) -> HostNode | None:
        """Return the node of the store with this name or id."""
        return next((node for node in await self._nodes.nodes() if name in (node.name, node.id)), None)


class AppNodes(_NodeCalls):
    """Host nodes, by name or id.

    Raises:
        RequestRefused: `node_not_found`: no node has the name or id; raised by all methods.
            `node_without_resources`: a host whose workers offer none; raised by `drain`, `resume` and `remove`.
            `node_in_use`: workers report the node; raised by `register` and `update_status`.
    """

    async def list(self) -> Sequence[HostNodeView]:
        return render_all(_view, await list_hosts(self._app))

    async def get(self, name: str) -> HostNodeView:
        """Return one node by its name or id, or one host with workers by its name."""
        return _require_node(
            name, next((node for node in await self.list() if name in (node.name, node.node_id)), None)
        )

    async def drain(self, name: str) -> HostNodeView:
        node = await self._note("drain", name)
        return _alone(_require_node(name, await self._nodes.drain(node.name, drains=True)))

    async def resume(self, name: str) -> HostNodeView:
        node = await self._note("resume", name)
        return _alone(_require_node(name, await self._nodes.drain(node.name, drains=False)))

    async def remove(self, name: str) -> HostNodeView:
        """Remove a node and release its allocations. A node with running workers registers again."""
        node = await self._note("remove", name)
        return _alone(_require_node(name, node if await self._nodes.remove(node.name) else None))

    async def register(self, told: NodeTold) -> RegisteredView:
        """Register a node that no worker reports, or replace the report of a registered one.

        Raises:
            InvalidOption: a name, an amount or a label is invalid.
        """
        _check_free(await self._find(told.name), "choose another name")
        await self._caller.note_action(self._app, "node.register", subject=told.name)
        told = checked_node(told)
        await self._nodes.report([told])
        return _registration_view(_require_node(told.name, await self._find(told.name)))

    async def update_status(self, name: str, status: Literal["available", "busy", "draining"]) -> RegisteredView:
        """Set the status of a node that no worker reports. Each call is a heartbeat; it does not end a drain."""
        node = _require_node(name, await self._find(name))
        _check_free(node, "drain and resume it as an operator")
        if status == "draining" and not node.is_draining:
            await self._caller.note_action(self._app, "node.drain", subject=node.name)
        updated = await self._nodes.set_busy(node.name, is_busy=status == "busy")
        if status == "draining":
            updated = await self._nodes.drain(node.name, drains=True)
        return _registration_view(_require_node(name, updated))

    async def _note(self, verb: str, name: str) -> HostNode:
        """Write an audit entry about an action on a node, and return the node."""
        has_store = self._app.sessions.current().store is not None
        node = await self._find(name) if has_store else None
        if node is None and any(host.name == name for host in await list_hosts(self._app)):
            raise RequestRefused(
                f"node {name[:128]!r} has no resources, so no jobs are placed on it; to drain its workers, use "
                f"`taskmq worker control drain --host {name[:128]}`",
                status=409,
                code="node_without_resources",
            )
        node = _require_node(name, node)
        await self._caller.note_action(self._app, f"node.{verb}", subject=node.name)
        return node


class AppResources(_NodeCalls):
    """Allocations of host nodes, for jobs and by callers."""

    async def allocate(
        self, amounts: Amounts, *, node_id: str | None = None, job_id: str = "", ttl: float | None = None
    ) -> AllocationView:
        """Allocate capacity for use outside taskmq.

        Args:
            node_id: id or name of the node; None: the best fit.
            job_id: description of the user, chosen by the caller.
            ttl: seconds until the allocation expires; None: it lasts until it is released.

        Raises:
            RequestRefused: `node_not_found`: there is no such node. `no_capacity`: no open node has enough free.
        """
        node = None if node_id is None else _require_node(node_id, await self._find(node_id)).name
        await self._caller.note_action(self._app, "resources.allocate", subject=node or "any", after=dict(amounts))
        new = NewAllocation(
            id=new_job_id(await self._app.sessions.store().now_ms(), os.urandom(10)),
            node=node,
            amounts=dict(amounts),
            job=job_id,
            tenant=self._caller.tenant or "",
            ttl=None if ttl is None else round(ttl * 1000),
        )
        if (made := await self._nodes.allocate(new)) is None:
            where = "no available node has" if node is None else f"node {node} does not have"
            raise RequestRefused(
                f"{where} enough free resources: see GET /api/v1/nodes", status=409, code="no_capacity"
            )
        return _allocation_view(made, await _ids_of_nodes(self._app))

    async def release(self, allocation_id: str) -> AllocationView:
        """Release an allocation made by `allocate`. A released one stays unchanged.

        Raises:
            RequestRefused: `allocation_not_found`: there is none.
        """
        await self._caller.note_action(self._app, "resources.release", subject=allocation_id)
        if (found := await self._nodes.release(allocation_id)) is None:
            raise RequestRefused(
                f"allocation {allocation_id[:64]!r} not found, or not made with this API",
                status=404,
                code="allocation_not_found",
            )
        return _allocation_view(found, await _ids_of_nodes(self._app))

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
        """Return allocations by node, job, tenant and period, with totals of up to 20,000 of them."""
        node = None
        if node_id is not None:
            found = await self._find(node_id)
            node = node_id if found is None else found.name
        which = AllocationFilter(
            node=node,
            job=job_id,
            tenant=of_tenant,
            since=None if since is None else milliseconds_of(since),
            until=None if until is None else milliseconds_of(until),
            is_open=is_open,
        )
        counted = await self._list_counted(which)
        end = await self._app.sessions.store().now_ms() if which.until is None else which.until
        page = await self._nodes.allocations(which, after=cursor or None, limit=limit + 1)
        ids = await _ids_of_nodes(self._app)
        return UsageView(
            hours={
                name: round(amount, 6)
                for name, amount in usage_of(counted, since=which.since or 0, until=end).items()
            },
            allocations=len(counted),
            is_bounded=len(counted) >= _MOST,
            items=render_all(lambda each: _allocation_view(each, ids), page[:limit]),
            next=page[limit - 1].id if len(page) > limit else None,
        )

    async def _list_counted(self, which: AllocationFilter) -> Sequence[Allocation]:
        found: list[Allocation] = []
        after: str | None = None
        while len(found) < _MOST:
            page = await self._nodes.allocations(which, after=after, limit=_PAGE)
            found += page
            if len(page) < _PAGE:
                break
            after = page[-1].id
        return found


def _check_free(node: HostNode | None, instead: str) -> None:
    if node is not None and node.told.runs_jobs:
        raise RequestRefused(
            f"node {node.name!r} is reported by its workers: {instead}", status=409, code="node_in_use"
        )


def _registration_view(node: HostNode) -> RegisteredView:
    return RegisteredView(node_id=node.id, name=node.name, status=node.state)


def _require_node(name: str, node: N | None) -> N:
    """Return the node, if it exists.

    Raises:
        RequestRefused: it does not exist.
    """
    if node is None:
        raise RequestRefused(f"node {name[:128]!r} not found", status=404, code="node_not_found")
    return node


def _alone(node: HostNode) -> HostNodeView:
    return _view(HostWorkers(node.name, node))


def _view(host: HostWorkers) -> HostNodeView:
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
        cpu=sum(each.cpu for each in workers),
        memory=sum(each.memory for each in workers),
    )


def _describe_host(host: HostWorkers) -> HostNode:
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


async def _ids_of_nodes(app: TaskMQ) -> dict[str, str]:
    """Return the ids of all nodes by name."""
    return {each.name: each.id for each in await app.sessions.store().nodes.nodes()}


def _allocation_view(allocation: Allocation, ids: dict[str, str]) -> AllocationView:
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
