"""View of one flow for the state machine, and changes of it, in one transaction of its store."""

from typing import NamedTuple, Protocol

import msgspec

from taskmq.contracts.stores.flows import NodeKind, NodeState, Rule
from taskmq.workflow.model.rules import ParentCounts

__all__ = ["FlowFacts", "FlowView", "Node", "NodeClaim"]


class NodeClaim(NamedTuple):
    """The worker that runs a node, or ran it last; `until` in ms, 0 if none runs it; token 0 if none ever has."""

    token: int = 0
    owner: str = ""
    until: int = 0


class Node(msgspec.Struct, frozen=True):
    """Progress of a node.

    Attributes:
        limit: of a map or a batch, and of its children, maximum of concurrent children; 0: no limit.
        parent: of a child, the key of its map or batch; otherwise "".
        total: of an expanded map or a closed batch, the number of its children; None for all others.
        visit: of an ended node, the number of the first follower that has not seen its end; None if all have.
    """

    key: str
    kind: NodeKind = "call"
    rule: Rule = "all"
    limit: int = 0
    parent: str = ""
    state: NodeState = NodeState.WAITING
    total: int | None = None
    visit: int | None = None
    claim: NodeClaim = NodeClaim()

    @property
    def takes_turns(self) -> bool:
        """Whether it waits until fewer than `limit` of its siblings are running."""
        return self.limit > 0 and self.parent != ""


class FlowFacts(NamedTuple):
    """A flow as a whole; `token` is the last one issued."""

    run: int = 0
    token: int = 0
    cancelled: str | None = None


class FlowView(Protocol):
    """The state machine's view of one workflow."""

    def facts(self) -> FlowFacts: ...

    def put_facts(self, facts: FlowFacts) -> None: ...

    def find(self, key: str) -> Node | None: ...

    def call(self, key: str) -> bytes:
        """Return the call that the node was created with."""
        ...

    def value(self, key: str) -> bytes:
        """Return the value of the node."""
        ...

    def with_states(self, states: frozenset[NodeState]) -> list[Node]:
        """Return the nodes that are in one of the states."""
        ...

    def put(self, node: Node, value: bytes | None = None) -> None:
        """Write a changed node, with its value if one is given."""
        ...

    def end(self, node: Node, value: bytes | None = None) -> bool:
        """End a node: unlist it from publishing, and list it for visits; return whether all nodes have ended."""
        ...

    def add_child(self, child: Node, call: bytes) -> bool:
        """Add a node before its map or batch; return False if it exists already."""
        ...

    def to_visit(self) -> Node | None:
        """Return a node whose end some of its followers have not seen, if any."""
        ...

    def arrive(self, node: Node, limit: int) -> list[tuple[Node, bool]]:
        """Let up to `limit` followers of a node see its end, from its `visit` on.

        Returns them, each with whether all that it waits for is complete now.
        """
        ...

    def revive(self, node: Node) -> None:
        """Reset a node to not ended; none of its followers has seen its end."""
        ...

    def is_complete(self, node: Node) -> bool:
        """Return whether all nodes before it have arrived; if it has a `total`, whether all its children have."""
        ...

    def parents(self, node: Node) -> ParentCounts:
        """Return how the nodes that arrived have ended."""
        ...

    def find_appended(self, key: str, name: str) -> int | None:
        """Return the recorded number of a batch's addition under a name."""
        ...

    def note_appended(self, key: str, name: str, number: int) -> None: ...

    def offer(self, key: str) -> None:
        """Add the node to the list to publish."""
        ...

    def withdraw(self, key: str) -> None:
        """Remove the node from the list to publish."""
        ...

    def lease(self, taker: str, *, until: int, now: int, limit: int, again: bool) -> list[str]:
        """Lease up to `limit` of the nodes to publish to `taker`: those that no taker holds now.

        Args:
            again: whether nodes that `taker` holds count as free, too.
        """
        ...

    def take_turn(self, child: Node) -> bool:
        """Return whether fewer than `limit` children of the map or batch run, and start this one; else it waits."""
        ...

    def leave_turn(self, child: Node) -> str | None:
        """End the turn or the wait of a child; return the next one that runs instead."""
        ...
