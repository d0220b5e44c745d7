"""When a node of a workflow may start, and when it never will. Pure."""

from typing import assert_never

import msgspec

from taskmq.contracts.stores.flows import NodeState, Rule

__all__ = ["ParentCounts", "decide"]


class ParentCounts(msgspec.Struct, frozen=True):
    """How those before a node have ended.

    Attributes:
        failed: those that have failed, and those that never came to start because of a failure.
        other: those that were cancelled or skipped.
    """

    succeeded: int = 0
    failed: int = 0
    other: int = 0


def decide(rule: Rule, parents: ParentCounts, *, is_complete: bool) -> NodeState:
    """The state of a node that waits: `READY`, `WAITING` on, or how it ends without having started.

    Args:
        is_complete: all before it have ended.
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
