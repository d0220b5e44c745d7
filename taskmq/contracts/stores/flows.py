"""Workflows in progress: ended nodes, nodes that may start, and the takers that publish those."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

import msgspec

__all__ = [
    "ENDED_STATES",
    "FINISH",
    "BegunNode",
    "BusyNode",
    "EndedNode",
    "FlowCursor",
    "FlowEntry",
    "FlowNode",
    "FlowPage",
    "FlowRecord",
    "FlowStore",
    "NodeKind",
    "NodeState",
    "Rule",
    "Taken",
    "TakenNode",
]

Rule = Literal["all", "any", "none_failed", "always"]
"""Rule that decides when a node starts, and when it never will:

- `all`: once all nodes before it have succeeded;
- `any`: once one of them has, whatever the others do;
- `none_failed`: once all have ended and none has failed; cancelled and skipped ones do no harm;
- `always`: once all have ended.

A node whose rule can no longer be met ends when all nodes before it have ended. It ends as `upstream_failed` if one
of them failed, or never started because of a failure, and otherwise as `skipped`.
"""

NodeKind = Literal["call", "map", "batch", "join", "finish"]
"""Kinds of nodes:

- `call`: a message;
- `map`: a message for each item of a value;
- `batch`: a message for each call that it is given, from its start until it is closed;
- `join`: no message, it only waits;
- `finish`: the flow itself, once all nodes have ended.
"""

FINISH = "."
"""The key under which `take` returns the end of the flow."""


class NodeState(StrEnum):
    """Progress of a node of a workflow."""

    WAITING = "waiting"
    READY = "ready"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


ENDED_STATES = frozenset(NodeState) - {NodeState.WAITING, NodeState.READY}


class FlowNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a graph.

    Attributes:
        key: its name in the flow; without dots, which are reserved for children of maps and batches: `key.0`, `key.1`
            and so on.
        after: the keys of the nodes before it.
        call: what to publish, in the publisher's own form.
        limit: of a map or a batch, maximum of children that are published and not ended; 0: all.
    """

    key: str
    kind: NodeKind = "call"
    rule: Rule = "all"
    after: tuple[str, ...] = ()
    call: bytes = b""
    limit: int = 0


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as a whole.

    Attributes:
        head: metadata of its sender.
        run: 0, and one more with every redrive.
        unfinished: number of nodes that have not ended.
        cancelled: why it was cancelled; None if it was not.
        started: its creation, in ms.
    """

    head: bytes
    run: int
    unfinished: int
    cancelled: str | None = None
    started: int = 0


class FlowCursor(NamedTuple):
    """Cursor of a flow in lists: its creation, and its id for equal times."""

    started: int
    flow_id: str


class FlowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in a list.

    Attributes:
        nodes: number of its nodes, including children of maps and batches.
        failed: of one that has ended and was not cancelled, the keys of failed nodes; the key of a map or batch
            stands for its children.
    """

    id: str
    record: FlowRecord
    nodes: int
    failed: frozenset[str] = frozenset()


class FlowPage(NamedTuple):
    """A page of flows, the newest first; `after` is the cursor of the next page, None on the last one."""

    entries: list[FlowEntry]
    after: FlowCursor | None


class BegunNode(msgspec.Struct, frozen=True):
    """The caller runs the node; its token is larger than every earlier `token` of the flow."""

    token: int
    call: bytes


class BusyNode(msgspec.Struct, frozen=True):
    """Another worker runs the node for at least `left` seconds unless it ends, or the node may not start yet."""

    left: float


class EndedNode(msgspec.Struct, frozen=True):
    """The node ended before, with this value."""

    state: NodeState
    value: bytes


class TakenNode(msgspec.Struct, frozen=True):
    """A node to publish, or a map to expand."""

    key: str
    kind: NodeKind
    call: bytes
    run: int


class Taken(msgspec.Struct, frozen=True):
    """Nodes that a taker must publish; if `is_more`, there may be more to take afterwards."""

    nodes: tuple[TakenNode, ...]
    is_more: bool


class FlowStore(Protocol):
    """Workflows: graphs whose nodes end one by one.

    The end of a node counts once, however often and in whatever order it is reported. `take` gives the nodes that
    became ready to one taker at a time, until that one calls `done`. If a taker dies, the nodes go to a taker of the
    same name immediately, and to any taker after the lease. So a node may be published twice and is never forgotten;
    `start` admits one run of it at a time. All data of a flow is deleted `ttl` seconds after its last change. Every
    method raises `StateUnavailable` if the store cannot be reached; the operation may have happened all the same, and
    may be repeated.
    """

    async def create(self, flow_id: str, head: bytes, nodes: Sequence[FlowNode], *, ttl: float) -> bool:
        """Create a flow of nodes, each listed after those before it; return False if it exists already."""
        ...

    async def start(
        self, flow_id: str, node: str, *, owner: str, seconds: float, takes_over: bool
    ) -> BegunNode | BusyNode | EndedNode | None:
        """Let `owner` run a node for `seconds`; None if the flow or the node is unknown (any more).

        Args:
            owner: a worker that holds the node already continues under the same token.
            takes_over: whether the last runner of the node is known to have lost it.
        """
        ...

    async def renew(self, flow_id: str, node: str, *, token: int, seconds: float) -> bool:
        """Run the node for `seconds` from now on; return False if another run has started, or it has ended."""
        ...

    async def release(self, flow_id: str, node: str, *, token: int) -> None:
        """End the run of that token, without ending the node."""
        ...

    async def end(
        self, flow_id: str, node: str, *, token: int, state: NodeState, value: bytes, taker: str, lease: float
    ) -> Taken | None:
        """End the node, and take what became ready by it, like `take`.

        Returns None, and changes nothing, if another run has started, the node was ended by another one, or the flow
        is unknown (any more). A repeated report of the same run gets the same answer.

        Args:
            token: of the run; 0 for a node that cannot be published and so has no run.
        """
        ...

    async def take(self, flow_id: str, *, taker: str, lease: float, again: bool = False) -> Taken:
        """Take some of the nodes to publish: no other taker gets them within `lease` seconds.

        Args:
            again: the taker may have taken nodes without calling `done`: it gets the same ones.
        """
        ...

    async def mark_done(self, flow_id: str, keys: Sequence[str], *, taker: str, lease: float) -> Taken:
        """Record that taken nodes are published or expanded, and take more."""
        ...

    async def expand(self, flow_id: str, node: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
        """Give a taken map some of its children, from number `first` on; it waits for all `total` of them.

        The map succeeds when all have succeeded, and fails when all have ended and one has not succeeded. Its value
        is their number. The last child fixes the set: a map that was not given all children fails when those that it
        has have ended.
        """
        ...

    async def append(
        self, flow_id: str, node: str, calls: Sequence[bytes], *, name: str = "", closes: bool = False
    ) -> int | None:
        """Give a batch up to 100 more children; return the number of the first one. They must be taken afterwards.

        Returns None, and changes nothing, if the batch is closed, cancelled, or unknown (any more).

        Args:
            name: a repeated call with the same name gets the same answer and adds nothing; "": every call adds.
            closes: these are the last children: the batch ends when all its children have, like a map. A repeated
                call without calls gets their number.
        """
        ...

    async def cancel(self, flow_id: str, *, reason: str) -> list[str] | None:
        """End all nodes that have not ended and do not run; return the keys of running ones. None: no such flow."""
        ...

    async def redrive(self, flow_id: str) -> int:
        """Reset all nodes that have not succeeded, so that they run again; return their number.

        Returns 0, and changes nothing, if the flow has not ended, all nodes succeeded, or there is none. Ready nodes
        must be taken afterwards.
        """
        ...

    async def look(self, flow_id: str) -> FlowRecord | None:
        """Return the flow as a whole; None if it is unknown (any more)."""
        ...

    async def entries(
        self,
        *,
        tenant: str | None = None,
        since: int | None = None,
        before: int | None = None,
        after: FlowCursor | None = None,
        limit: int = 100,
    ) -> FlowPage:
        """Return known flows, the newest first.

        A flow is listed from its creation until it is deleted. A page may have fewer than `limit` entries and not be
        the last one. Pages of one listing never repeat a flow, even while flows are created.

        Args:
            tenant: the tenant: `""` for flows without one, None for all.
            since: created at this instant (ms) or later.
            before: created before this instant (ms).
            after: `after` of the previous page.
        """
        ...

    async def states(self, flow_id: str) -> dict[str, NodeState]:
        """Return the state of every node, including children of maps and batches."""
        ...

    async def outcomes(self, flow_id: str, keys: Sequence[str]) -> list[EndedNode | None]:
        """Return the ends of nodes; None for one that has not ended, or is unknown."""
        ...

    async def calls(self, flow_id: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the calls that nodes were created with; None for an unknown node."""
        ...

    async def ended_keys(self, flow_id: str, *, offset: int, limit: int) -> list[str]:
        """Return the keys of up to `limit` ended nodes in the order of their ends, after the first `offset`.

        A redriven node occurs once for every end.
        """
        ...
