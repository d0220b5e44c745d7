"""Rules that decide when a node of a workflow may start, and when it never will. Pure."""

from typing import assert_never

import msgspec

from taskmq.contracts.stores.flows import NodeState, Rule

__all__ = ["ParentCounts", "decide"]


class ParentCounts(msgspec.Struct, frozen=True):
    """The ends of the nodes before a node.

    Attributes:
        failed: number of failed nodes, and of those that never started because of a failure.
        other: number of cancelled or skipped nodes.
    """

    succeeded: int = 0
    failed: int = 0
    other: int = 0


def decide(rule: Rule, parents: ParentCounts, *, is_complete: bool) -> NodeState:
    """Return the state of a waiting node: `READY`, still `WAITING`, or its end without a start.

    Args:
        is_complete: whether all nodes before it have ended.
    """
    if rule == "any" and parents.succeeded:
        return NodeState.READY
    if not is_complete:
        return NodeState.WAITING
    match rule:
        case "all":
            meets = not parents.failed and not parents.other
        case "any":
            meets = False
        case "none_failed":
            meets = not parents.failed
        case "always":
            meets = True
        case _:
            assert_never(rule)
    if meets:
        return NodeState.READY
    return NodeState.UPSTREAM_FAILED if parents.failed else NodeState.SKIPPED
