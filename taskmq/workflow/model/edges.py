"""What stands before what in a workflow, as people see it. Pure."""

from collections.abc import Collection, Mapping

from taskmq.workflow.model.calls import NodeCall

__all__ = ["nodes_before"]


def nodes_before(calls: Mapping[str, NodeCall], shown: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Of each shown node the keys of the shown ones that it is behind, in the order of the graph.

    Nodes that only wait for others are seen through: who is behind one is behind those that it waits for.

    Args:
        calls: of all nodes but the children of maps and batches, by key, each after those before it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, call in calls.items():
        sources = [*call.members, *(each.source for each in call.inputs), *([call.over] if call.over else [])]
        # A node is its own where it is shown, and what is before it where it is not.
        seen = dict.fromkeys(
            shown_key
            for each in (*(source.key for source in sources), *call.after)
            for shown_key in ((each,) if each in shown else found.get(each, ()))
        )
        found[key] = tuple(seen)
    return {key: before for key, before in found.items() if key in shown}
