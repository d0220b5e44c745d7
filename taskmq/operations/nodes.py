"""Host nodes and what is allocated of them: listed, drained, registered by hand; allocations for others."""

import os
from collections.abc import Sequence
from typing import Literal, NamedTuple

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import JobStore
from taskmq.model.envelope import new_job_id
from taskmq.model.nodes import (
    Allocation,
    AllocationFilter,
    HostNode,
    NewAllocation,
    NodeTold,
    checked_node,
    usage_of,
)
from taskmq.model.resources import Amounts

__all__ = [
    "Usage",
    "allocate",
    "drain_node",
    "find_node",
    "list_allocations",
    "list_nodes",
    "register_node",
    "release",
    "remove_node",
    "say_status",
    "usage",
]

_PAGE = 500
_MOST = 20_000


class Usage(NamedTuple):
    """What was allocated in a time.

    Attributes:
        hours: amounts times hours, by name.
        allocations: how many there were.
        is_bounded: there were more, which are not counted.
    """

    hours: dict[str, float]
    allocations: int
    is_bounded: bool


async def list_nodes(app: TaskMQ) -> Sequence[HostNode]:
    """All nodes that the store knows, by name.

    Raises:
        UnsupportedFeature: the app has no store; so do the others here.
        StoreUnavailable: it could not be reached; so do the others here.
    """
    return await _store(app).nodes.nodes()


async def find_node(app: TaskMQ, name_or_id: str) -> HostNode | None:
    """The node with this name or id."""
    found = [node for node in await list_nodes(app) if name_or_id in (node.name, node.id)]
    return found[0] if found else None


async def drain_node(app: TaskMQ, name_or_id: str, *, drains: bool = True) -> HostNode | None:
    """Have a node get nothing more, or something again; None where there is none. What runs there goes on."""
    node = await find_node(app, name_or_id)
    return None if node is None else await _store(app).nodes.drain(node.name, drains=drains)


async def remove_node(app: TaskMQ, name_or_id: str) -> HostNode | None:
    """Forget a node, with its allocations; None where there is none. One whose workers run comes back by itself."""
    node = await find_node(app, name_or_id)
    return node if node is not None and await _store(app).nodes.remove(node.name) else None


async def register_node(app: TaskMQ, told: NodeTold) -> HostNode:
    """Have the store know a node that no worker reports; one that is known says something else from now on.

    Raises:
        InvalidOption: a name, an amount or a label that cannot be.
    """
    checked = checked_node(told)
    await _store(app).nodes.tell([checked])
    node = await find_node(app, checked.name)
    assert node is not None
    return node


async def say_status(
    app: TaskMQ, name_or_id: str, status: Literal["available", "busy", "draining"]
) -> HostNode | None:
    """What the owner of a node says of it, which is a heartbeat; None where there is none. A drain goes on."""
    nodes = _store(app).nodes
    node = await find_node(app, name_or_id)
    if node is None:
        return None
    said = await nodes.say_busy(node.name, is_busy=status == "busy")
    return await nodes.drain(node.name, drains=True) if status == "draining" else said


async def allocate(
    app: TaskMQ,
    amounts: Amounts,
    *,
    node: str | None = None,
    job: str = "",
    tenant: str = "",
    ttl: float | None = None,
) -> Allocation | None:
    """Allocate for a user outside of taskmq; None where no open node has so much free.

    Args:
        node: its name; None: the one that fits best.
        job: for whom, in the caller's words.
        ttl: seconds until it ends by itself; None: when it is released.
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
    """End one that `allocate` has made; None where there is none."""
    return await _store(app).nodes.release(allocation)


async def list_allocations(
    app: TaskMQ, which: AllocationFilter, *, after: str | None = None, limit: int = 50
) -> Sequence[Allocation]:
    """Allocations of jobs and of others, the newest first."""
    return await _store(app).nodes.allocations(which, after=after, limit=limit)


async def usage(app: TaskMQ, which: AllocationFilter) -> Usage:
    """What was allocated within the filter's time; without one since ever, until now."""
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
