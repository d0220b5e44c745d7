"""`/nodes`: host nodes, at `/api/v1` and at the API's original paths."""

from typing import Any, Final

from litestar import delete, get, post
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody

from taskmq.api.nodes import HostNodeView, NodeList, RegisterBody, RegisteredView, StatusBody
from taskmq.app_api.nodes import found_node
from taskmq.model.identity import Permission
from taskmq.model.nodes import HostNode, NodeTold, lost_after
from taskmq.operations import nodes as operations
from taskmq.server.inputs import ApiGiven, CallerGiven, ServedApp
from taskmq.server.live.samples import MaxAge, read_shared
from taskmq.server.nodes.amounts import read_capacity
from taskmq.server.problems import Problem
from taskmq.server.settings import API


@get(
    f"{API}/nodes",
    permission=Permission.NODES_READ,
    operation_id="listNodes",
    summary="List nodes",
    tags=["nodes"],
)
async def list_nodes(api: ApiGiven, state: State, max_age: MaxAge = 0) -> NodeList:
    """Return all nodes with their allocated resources, and the hosts of all workers that answer within a second."""

    async def read() -> NodeList:
        return NodeList(list(await api.nodes.list()))

    return await read_shared(state, "nodes", max_age, read)


@get(
    f"{API}/nodes/{{name:str}}",
    permission=Permission.NODES_READ,
    operation_id="getNode",
    summary="Get a node",
    tags=["nodes"],
)
async def get_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Return a node by its name or id, or a host with workers by its name."""
    return await api.nodes.get(name)


@post(
    f"{API}/nodes/{{name:str}}/drain",
    status_code=200,
    permission=Permission.NODES_OPERATE,
    operation_id="drainNode",
    summary="Drain a node",
    tags=["nodes"],
)
async def drain_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Stop placing jobs on the node. Running jobs continue."""
    return await api.nodes.drain(name)


@post(
    f"{API}/nodes/{{name:str}}/resume",
    status_code=200,
    permission=Permission.NODES_OPERATE,
    operation_id="resumeNode",
    summary="Resume a node",
    tags=["nodes"],
)
async def resume_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Resume placing jobs on the node."""
    return await api.nodes.resume(name)


@delete(
    f"{API}/nodes/{{name:str}}",
    status_code=200,
    permission=Permission.NODES_OPERATE,
    operation_id="removeNode",
    summary="Remove a node",
    tags=["nodes"],
)
async def remove_node(api: ApiGiven, name: FromPath[str]) -> HostNodeView:
    """Remove a node and release its allocations. A node with running workers registers again."""
    return await api.nodes.remove(name)


@post(
    "/nodes/register",
    permission=Permission.NODES_REPORT,
    operation_id="registerNodeCompat",
    summary="Register a node",
    tags=["compatible names"],
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


@post(
    "/nodes/update-status",
    status_code=200,
    permission=Permission.NODES_REPORT,
    operation_id="updateNodeStatusCompat",
    summary="Update the status of a node",
    tags=["compatible names"],
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


@get(
    "/nodes/list",
    permission=Permission.NODES_READ,
    operation_id="listNodesCompat",
    summary="List nodes",
    tags=["compatible names"],
)
async def list_nodes_compat(api: ApiGiven) -> list[HostNodeView]:
    """Return all nodes, and the hosts of all workers that answer within a second, as an array."""
    return list(await api.nodes.list())


HOST_HANDLERS: Final[tuple[Any, ...]] = (
    list_nodes,
    get_node,
    drain_node,
    resume_node,
    remove_node,
    register_node,
    update_status,
    list_nodes_compat,
)


def _in_use(node: HostNode, instead: str) -> Problem:
    return Problem(409, "node_in_use", f"node {node.name!r} is reported by its workers: {instead}")
