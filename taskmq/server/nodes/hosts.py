"""`/nodes`: host nodes, at `/api/v1` and at the API's original paths."""

from typing import Final

from litestar.datastructures import State
from litestar.params import FromPath, JSONBody

from taskmq.api.nodes import HostNodeView, NodeList, RegisterBody, RegisteredView, StatusBody
from taskmq.model.identity import Permission
from taskmq.model.nodes import NodeTold, lost_after
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.nodes.amounts import read_capacity

HOST_HANDLERS: Final = Handlers("nodes")


@HOST_HANDLERS.handle("GET /nodes", "listNodes", Permission.NODES_READ, "List nodes")
async def list_nodes(api: ApiGiven, state: State, max_age: MaxAge = 0) -> NodeList:
    """Return all nodes with their allocated resources, and the hosts of all workers, as of their last heartbeats."""

    async def read() -> NodeList:
        return NodeList(list(await api.nodes.list()))

    return await read_shared(state, "nodes", max_age, read)


@HOST_HANDLERS.handle("GET /nodes/{name}", "getNode", Permission.NODES_READ, "Get a node")
async def get_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Return a node by its name or id, or a host with workers by its name."""
    return await api.nodes.get(name)


@HOST_HANDLERS.handle("POST /nodes/{name}/drain", "drainNode", Permission.NODES_OPERATE, "Drain a node", repeats=True)
async def drain_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Stop placing jobs on the node. Running jobs continue."""
    return await api.nodes.drain(name)


@HOST_HANDLERS.handle(
    "POST /nodes/{name}/resume", "resumeNode", Permission.NODES_OPERATE, "Resume a node", repeats=True
)
async def resume_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Resume placing jobs on the node."""
    return await api.nodes.resume(name)


@HOST_HANDLERS.handle("DELETE /nodes/{name}", "removeNode", Permission.NODES_OPERATE, "Remove a node")
async def remove_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Remove a node and release its allocations. A node with running workers registers again."""
    return await api.nodes.remove(name)


@HOST_HANDLERS.handle(
    "POST /nodes/register",
    "registerNodeCompat",
    Permission.NODES_REPORT,
    "Register a node",
    status_code=201,
    is_compatible=True,
    repeats=True,
)
async def register_node(data: JSONBody[RegisterBody], api: ApiGiven) -> RegisteredView:
    """Register a node, or update a registered one. Its resources can then be allocated."""
    told = NodeTold(
        name=data.name,
        address=data.ip,
        capacity=read_capacity(data.capacity),
        labels=dict(data.labels),
        lost_after=None if data.heartbeat_seconds is None else lost_after(data.heartbeat_seconds),
    )
    return await api.nodes.register(told)


@HOST_HANDLERS.handle(
    "POST /nodes/update-status",
    "updateNodeStatusCompat",
    Permission.NODES_REPORT,
    "Update the status of a node",
    is_compatible=True,
    repeats=True,
)
async def update_status(data: JSONBody[StatusBody], api: ApiGiven) -> RegisteredView:
    """Set the status of a node that no worker reports. Each call is a heartbeat; it does not end a drain."""
    return await api.nodes.update_status(data.node_id, data.status)


@HOST_HANDLERS.handle("GET /nodes/list", "listNodesCompat", Permission.NODES_READ, "List nodes", is_compatible=True)
async def list_nodes_compat(api: ApiGiven) -> list[HostNodeView]:
    """Return all nodes and the hosts of all workers, as of their last heartbeats, as an array."""
    return list(await api.nodes.list())
