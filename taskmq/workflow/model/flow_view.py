"""What the state machine sees of one flow, and changes of it, in one transaction of whatever keeps it."""

from typing import NamedTuple, Protocol

import msgspec

from taskmq.contracts.stores.flows import NodeKind, NodeState, Rule
from taskmq.workflow.model.rules import ParentCounts

__all__ = ["FlowFacts", "FlowView", "Node", "NodeClaim"]


class NodeClaim(NamedTuple):
    """The worker that runs a node, or ran it last; `until` in ms, 0 where none does; token 0: none ever has."""

    token: int = 0
    owner: str = ""
    until: int = 0


class Node(msgspec.Struct, frozen=True):
    """How far a node has come.

    Attributes:
        limit: of a map or a batch, and of its children, how many of those are out at a time; 0: all.
        parent: of a child, the key of its map or batch; otherwise "".
        total: of a map that was expanded, or a batch that was closed, how many children it has; None of all others.
        visit: of a node that has ended, the number of the first of those after it that have not seen its end; None
            where all have.
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
        """Whether it waits until fewer than `limit` of its siblings are out."""
        return self.limit > 0 and self.parent != ""


class FlowFacts(NamedTuple):
    """A flow as a whole; `token` is the last that was given."""

    run: int = 0
    token: int = 0
    cancelled: str | None = None


class FlowView(Protocol):
    """What the state machine reads of one workflow."""

    def facts(self) -> FlowFacts: ...

    def put_facts(self, facts: FlowFacts) -> None: ...

    def find(self, key: str) -> Node | None: ...

    def call(self, key: str) -> bytes:
        """What the node was made with."""
        ...

    def value(self, key: str) -> bytes:
        """What the node has come to."""
        ...

    def with_states(self, states: frozenset[NodeState]) -> list[Node]:
        """The nodes that are in one of the states."""
        ...

    def put(self, node: Node, value: bytes | None = None) -> None:
        """A node has changed, and where `value` is given has come to it."""
        ...

    def end(self, node: Node, value: bytes | None = None) -> bool:
        """A node has ended: it is not to be published any more, and the next of those that have; whether all have."""
        ...

    def add_child(self, child: Node, call: bytes) -> bool:
        """Add a node before its map or batch; False where it is there already."""
        ...

    def to_visit(self) -> Node | None:
        """One of the nodes whose end some of those after it have not seen."""
        ...

    def arrive(self, node: Node, limit: int) -> list[tuple[Node, bool]]:
        """Have up to `limit` of those after a node see its end, from its `visit` on; for which of them it completes
        what they wait for.
        """
        ...

    def revive(self, node: Node) -> None:
        """A node has not ended any more, and none of those after it has seen its end."""
        ...

    def is_complete(self, node: Node) -> bool:
        """Whether all before the node have arrived; where it has a `total`, all its children."""
        ...

    def parents(self, node: Node) -> ParentCounts:
        """How those that have arrived have ended."""
        ...

    def appended(self, key: str, name: str) -> int | None:
        """What was noted for a batch under a name."""
        ...

    def note_appended(self, key: str, name: str, number: int) -> None: ...

    def offer(self, key: str) -> None:
        """Put the node on the list to publish."""
        ...

    def withdraw(self, key: str) -> None:
        """Take the node off the list to publish."""
        ...

    def lease(self, taker: str, *, until: int, now: int, limit: int, again: bool) -> list[str]:
        """Up to `limit` of the nodes to publish are `taker`'s until then: those that no taker has now.

        Args:
            again: what `taker` has is free as well.
        """
        ...

    def take_turn(self, child: Node) -> bool:
        """Whether fewer than `limit` children of the map or batch are out, and now this one; otherwise it waits."""
        ...

    def leave_turn(self, child: Node) -> str | None:
        """The child is out no more, nor waits for it; the next one that is out instead."""
        ...
