"""Host nodes (list, drain, remove, register) and their allocations, including those for external users."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore
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

_PAGE = 500
_MOST = 20_000


class Usage(NamedTuple):
    """Amounts allocated in a time.

    Attributes:
        hours: amount times hours, by capacity name.
        allocations: number of allocations.
        is_bounded: whether there were more, which are not counted.
    """

    hours: dict[str, float]
    allocations: int
    is_bounded: bool


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


async def list_nodes(app: TaskMQ) -> Sequence[HostNode]:
    """Return all nodes that the store knows, sorted by name.

    Raises:
        UnsupportedFeature: the app has no store. All functions of this module raise it.
        StoreUnavailable: the store could not be reached. All functions of this module raise it.
    """
    return await _store(app).nodes.nodes()


async def find_node(app: TaskMQ, name_or_id: str) -> HostNode | None:
    """Return the node with this name or id; None if there is none."""
    found = [node for node in await list_nodes(app) if name_or_id in (node.name, node.id)]
    return found[0] if found else None


async def drain_node(app: TaskMQ, name_or_id: str, *, drains: bool = True) -> HostNode | None:
    """Stop placing jobs on a node, or resume. Running jobs continue. Returns None if there is no such node."""
    node = await find_node(app, name_or_id)
    return None if node is None else await _store(app).nodes.drain(node.name, drains=drains)


async def remove_node(app: TaskMQ, name_or_id: str) -> HostNode | None:
    """Delete a node with its allocations. Returns None if there is no such node.

    A node with running workers registers itself again.
    """
    node = await find_node(app, name_or_id)
    return node if node is not None and await _store(app).nodes.remove(node.name) else None


async def register_node(app: TaskMQ, report: NodeTold) -> HostNode:
    """Register a node that no worker reports, or replace the report of a known one.

    Raises:
        InvalidOption: a name, an amount or a label is invalid.
    """
    checked = checked_node(report)
    await _store(app).nodes.report([checked])
    node = await find_node(app, checked.name)
    assert node is not None
    return node


async def report_status(
    app: TaskMQ, name_or_id: str, status: Literal["available", "busy", "draining"]
) -> HostNode | None:
    """Record the status that a node's owner reports; this counts as a heartbeat and does not end a drain.

    Returns None if there is no such node.
    """
    nodes = _store(app).nodes
    node = await find_node(app, name_or_id)
    if node is None:
        return None
    updated = await nodes.set_busy(node.name, is_busy=status == "busy")
    return await nodes.drain(node.name, drains=True) if status == "draining" else updated


async def allocate(
    app: TaskMQ,
    amounts: Amounts,
    *,
    node: str | None = None,
    job: str = "",
    tenant: str = "",
    ttl: float | None = None,
) -> Allocation | None:
    """Allocate capacity to a user outside of taskmq. Returns None if no open node has enough free.

    Args:
        node: name of the node; None: the best fit.
        job: description of the user, chosen by the caller.
        ttl: seconds until the allocation expires; None: it lasts until it is released.
    """
    store = _store(app)
    new = NewAllocation(
        id=new_job_id(await store.now_ms(), os.urandom(10)),
        node=node,
        amounts=dict(amounts),
        job=job,
        tenant=tenant,
        ttl=None if ttl is None else round(ttl * 1000),
    )
    return await store.nodes.allocate(new)


async def release(app: TaskMQ, allocation: str) -> Allocation | None:
    """End an allocation made by `allocate`. Returns None if there is none."""
    return await _store(app).nodes.release(allocation)


async def list_allocations(
    app: TaskMQ, which: AllocationFilter, *, after: str | None = None, limit: int = 50
) -> Sequence[Allocation]:
    """Return allocations of jobs and of external users, newest first."""
    return await _store(app).nodes.allocations(which, after=after, limit=limit)


async def sum_usage(app: TaskMQ, which: AllocationFilter) -> Usage:
    """Sum what was allocated within the filter's time; default: from the beginning until now."""
    store = _store(app)
    until = await store.now_ms() if which.until is None else which.until
    found: list[Allocation] = []
    after: str | None = None
    while len(found) < _MOST:
        page = await store.nodes.allocations(which, after=after, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            break
        after = page[-1].id
    hours = usage_of(found, since=which.since or 0, until=until)
    return Usage(hours, len(found), is_bounded=len(found) >= _MOST)


def _store(app: TaskMQ) -> JobStore:
    return app.sessions.store()
