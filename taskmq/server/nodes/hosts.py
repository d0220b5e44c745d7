"""`/nodes`: host nodes, at `/api/v1` and at the API's original paths."""

from typing import Final

from litestar.datastructures import State
from litestar.params import FromPath, JSONBody

from taskmq.api.nodes import HostNodeView, NodeList, RegisterBody, RegisteredView, StatusBody
from taskmq.app_api.nodes import found_node
from taskmq.model.identity import Permission
from taskmq.model.nodes import HostNode, NodeTold, lost_after
from taskmq.operations import nodes as operations
from taskmq.server.handlers import Handlers
from taskmq.server.inputs import ApiGiven, CallerGiven, ServedApp
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.nodes.amounts import read_capacity
from taskmq.server.problems import Problem

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


@HOST_HANDLERS.handle("POST /nodes/{name}/drain", "drainNode", Permission.NODES_OPERATE, "Drain a node")
async def drain_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Stop placing jobs on the node. Running jobs continue."""
    return await api.nodes.drain(name)


@HOST_HANDLERS.handle("POST /nodes/{name}/resume", "resumeNode", Permission.NODES_OPERATE, "Resume a node")
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
)
async def register_node(data: JSONBody[RegisterBody], app: ServedApp, caller: CallerGiven) -> RegisteredView:
    """Register a node, or update a registered one. Its resources can then be allocated."""
    told = NodeTold(
        name=data.name,
        address=data.ip,
        capacity=read_capacity(data.capacity),
        labels=dict(data.labels),
        lost_after=None if data.heartbeat_seconds is None else lost_after(data.heartbeat_seconds),
    )
    known = await operations.find_node(app, data.name)
    if known is not None and known.told.runs_jobs:
        raise _in_use(known, "choose another name")
    await caller.note_action(app, "node.register", subject=data.name)
    node = await operations.register_node(app, told)
    return RegisteredView(node_id=node.id, name=node.name, status=node.state)


@HOST_HANDLERS.handle(
    "POST /nodes/update-status",
    "updateNodeStatusCompat",
    Permission.NODES_REPORT,
    "Update the status of a node",
    is_compatible=True,
)
async def update_status(data: JSONBody[StatusBody], app: ServedApp, caller: CallerGiven) -> RegisteredView:
    """Set the status of a node that no worker reports. Each call is a heartbeat; it does not end a drain."""
    known = found_node(data.node_id, await operations.find_node(app, data.node_id))
    if known.told.runs_jobs:
        raise _in_use(known, "drain and resume it as an operator")
    if data.status == "draining" and not known.is_draining:
        await caller.note_action(app, "node.drain", subject=known.name)
    node = found_node(data.node_id, await operations.report_status(app, known.name, data.status))
    return RegisteredView(node_id=node.id, name=node.name, status=node.state)


@HOST_HANDLERS.handle("GET /nodes/list", "listNodesCompat", Permission.NODES_READ, "List nodes", is_compatible=True)
async def list_nodes_compat(api: ApiGiven) -> list[HostNodeView]:
    """Return all nodes and the hosts of all workers, as of their last heartbeats, as an array."""
    return list(await api.nodes.list())


def _in_use(node: HostNode, instead: str) -> Problem:
    return Problem(409, "node_in_use", f"node {node.name!r} is reported by its workers: {instead}")
