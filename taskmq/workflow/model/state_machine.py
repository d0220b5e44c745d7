"""State machine of workflows: the effects of a node's end, over any store of the nodes. Pure.

    end(node) -> to visit: its followers -> each one is ready, ends without a start, or keeps waiting
                                              ready: published by its taker
                                              ended: its followers are visited as well

The nodes to visit and to publish are lists of the flow, so the next worker continues where another has stopped. Every
step may be repeated. Nothing is counted: the nodes that have arrived are a set, so a node that ends twice arrives
once.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.stores.flows import FINISH, NodeState
from taskmq.workflow.model.flow_view import FlowView, Node
from taskmq.workflow.model.rules import ParentCounts, decide

__all__ = ["advance", "append", "cancel_node", "end_node", "evaluate", "expand", "open_node", "revive"]


_NEXT: Final = ""


def open_node(view: FlowView, node: Node) -> None:
    """Evaluate a new node without predecessors, which may be ready already."""
    _decide(view, node, ParentCounts(), is_complete=True)


def end_node(view: FlowView, node: Node, state: NodeState, value: bytes | None = None) -> None:
    """End a node in a state, with its value."""
    _end(view, replace(node, state=state, visit=0), value)


def cancel_node(view: FlowView, node: Node, value: bytes) -> None:
    """End a node of a cancelled flow. Its followers need not know, because they are cancelled as well."""
    _end(view, replace(node, state=NodeState.CANCELLED), value)


def advance(view: FlowView, budget: int) -> bool:
    """Visit up to `budget` followers of ended nodes; return whether some are left."""
    while (node := view.to_visit()) is not None:
        if budget <= 0:
            return True
        # Recorded even if a follower has ended: it may be redriven.
        followers = view.arrive(node, budget)
        is_hit = node.state is NodeState.SUCCEEDED
        for follower, is_complete in followers:
            if is_complete or is_hit:
                evaluate(view, follower, is_complete=is_complete, is_hit=is_hit)
        is_partial = len(followers) == budget
        view.put(replace(node, visit=(node.visit or 0) + budget if is_partial else None))
        budget -= max(len(followers), 1)
    return False


def evaluate(view: FlowView, node: Node, *, is_complete: bool, is_hit: bool) -> None:
    """Decide about a node.

    Args:
        is_complete: whether all that it waits for has arrived.
        is_hit: whether a predecessor may have succeeded since the last evaluation.
    """
    if node.total is not None:
        if is_complete and node.state is NodeState.READY:
            is_good = view.parents(node).succeeded == node.total
            end_node(view, node, NodeState.SUCCEEDED if is_good else NodeState.FAILED)
    elif node.state is NodeState.WAITING and (is_complete or (is_hit and node.rule == "any")):
        _decide(view, node, view.parents(node), is_complete=is_complete)


def expand(view: FlowView, node: Node, calls: Sequence[bytes], *, first: int, total: int) -> None:
    """Add children to a map; with the last of them it waits for all. Does nothing if it is expanded already."""
    if node.state is not NodeState.READY or node.total is not None:
        return
    _add_children(view, node, calls, first)
    if first + len(calls) >= total:
        _has_all_children(view, node, total)


def append(view: FlowView, node: Node, calls: Sequence[bytes], *, name: str, closes: bool) -> int | None:
    """Add children to a batch; with the last of them it waits for all. Return the number of the first one.

    Returns None if it is closed or has ended. A repeated call under the same name gets the same answer; closing a
    closed batch again returns the number of its children.
    """
    if name and (earlier := view.find_appended(node.key, name)) is not None:
        return earlier
    if node.total is not None and closes and not calls:
        return node.total
    if node.state is not NodeState.READY or node.total is not None:
        return None
    first = view.find_appended(node.key, _NEXT) or 0
    total = first + len(calls)
    _add_children(view, node, calls, first)
    view.note_appended(node.key, _NEXT, total)
    if name:
        view.note_appended(node.key, name, first)
    if closes:
        _has_all_children(view, node, total)
    return first


def revive(view: FlowView, node: Node) -> Node:
    """Reset a node that ended without success, so that it waits again; its followers have not seen its end."""
    # Children stay: their number must not change, and successful ones are done.
    has_children = node.total is not None or node.kind == "batch"
    revived = replace(node, state=NodeState.READY if has_children else NodeState.WAITING, visit=None)
    view.revive(revived)
    return revived


def _decide(view: FlowView, node: Node, parents: ParentCounts, *, is_complete: bool) -> None:
    match decide(node.rule, parents, is_complete=is_complete):
        case NodeState.READY if node.kind == "join":
            end_node(view, node, NodeState.SUCCEEDED)
        case NodeState.READY:
            view.put(replace(node, state=NodeState.READY))
            if node.kind != "batch" and (not node.takes_turns or view.take_turn(node)):
                view.offer(node.key)
        case NodeState.WAITING:
            pass
        case state:
            end_node(view, node, state)


def _add_children(view: FlowView, node: Node, calls: Sequence[bytes], first: int) -> None:
    for number, call in enumerate(calls, first):
        child = Node(key=f"{node.key}.{number}", limit=node.limit, parent=node.key)
        if view.add_child(child, call):
            open_node(view, child)


def _has_all_children(view: FlowView, node: Node, total: int) -> None:
    """Record that a map or a batch has all its children, which may all have ended."""
    whole = replace(node, total=total)
    view.put(whole, str(total).encode())
    evaluate(view, whole, is_complete=view.is_complete(whole), is_hit=True)


def _end(view: FlowView, node: Node, value: bytes | None) -> None:
    is_last = view.end(node, value)
    if node.takes_turns and (following := view.leave_turn(node)) is not None:
        view.offer(following)
    if is_last:
        view.offer(FINISH)
