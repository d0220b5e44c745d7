"""Helpers for tests of workflows: start, end and take nodes."""

from taskmq.contracts.stores.flows import BegunNode, FlowNode, FlowStore, NodeState, Taken
from taskmq.testing.state_suite.case import LONG, new

__all__ = ["CHAIN", "begin_node", "end_node", "take_all", "taken_keys"]

CHAIN = (
    FlowNode(key="0", call=b"first"),
    FlowNode(key="1", after=("0",), call=b"second"),
)


async def begin_node(flows: FlowStore, flow_id: str, key: str) -> int:
    begun = await flows.start(flow_id, key, owner=new("run"), seconds=LONG, takes_over=False)
    assert isinstance(begun, BegunNode), begun
    return begun.token


async def end_node(
    flows: FlowStore, flow_id: str, key: str, state: NodeState = NodeState.SUCCEEDED, value: bytes = b"1"
) -> Taken:
    token = await begin_node(flows, flow_id, key)
    taken = await flows.end(flow_id, key, token=token, state=state, value=value, taker=key, lease=LONG)
    assert taken is not None
    return taken


def taken_keys(taken: Taken) -> list[str]:
    return sorted(node.key for node in taken.nodes)


async def take_all(flows: FlowStore, flow_id: str, taken: Taken, *, taker: str) -> list[str]:
    """Take all available nodes and mark them as done; return their keys."""
    found: list[str] = []
    while taken.nodes or taken.is_more:
        found += taken_keys(taken)
        taken = await flows.mark_done(flow_id, taken_keys(taken), taker=taker, lease=LONG)
    return found
