"""Workflows on their way: which nodes have ended, which may start, and who is about to publish those."""

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
    "FlowEntry",
    "FlowNode",
    "FlowPage",
    "FlowPlace",
    "FlowRecord",
    "FlowStore",
    "NodeKind",
    "NodeState",
    "Rule",
    "Taken",
    "TakenNode",
]

Rule = Literal["all", "any", "none_failed", "always"]
"""When a node starts, and when it never will:

- `all`: once all before it have succeeded;
- `any`: once one of them has, whatever the others do;
- `none_failed`: once all have ended and none has failed; those that were cancelled or skipped do no harm;
- `always`: once all have ended.

A node whose rule cannot be met any more ends when all before it have ended: as `upstream_failed` where one of them
has failed, or never came to start because of a failure, and otherwise as `skipped`.
"""

NodeKind = Literal["call", "map", "batch", "join", "finish"]
"""What a node means:

- `call`: a message;
- `map`: a message for each item of a value;
- `batch`: a message for each call that it is given, from its start until it is closed;
- `join`: none, it only waits;
- `finish`: the flow itself, once all nodes have ended.
"""

FINISH = "."
"""The key under which `take` hands out the end of the flow."""


class NodeState(StrEnum):
    """How far a node of a workflow has come."""

    WAITING = "waiting"
    READY = "ready"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


ENDED_STATES = frozenset(NodeState) - {NodeState.WAITING, NodeState.READY}


class FlowNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node of a graph.

    Attributes:
        key: its name in the flow; without dots, which are for the children of maps and batches: `key.0`, `key.1` and
            so on.
        after: the keys of the nodes before it.
        call: what is to be published, as the publisher understands it.
        limit: of a map or a batch, how many of its children may be published and not ended at a time; 0: all.
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
        head: what its sender has written on it.
        run: 0, and one more with every redrive.
        unfinished: how many nodes have not ended.
        cancelled: why it was cancelled; None when it was not.
        started: when it was made, in ms.
    """

    head: bytes
    run: int
    unfinished: int
    cancelled: str | None = None
    started: int = 0


class FlowPlace(NamedTuple):
    """A flow's place among the others: by when it was made, and by its id where that is the same."""

    started: int
    flow_id: str


class FlowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in a list.

    Attributes:
        nodes: how many it has, children of maps and batches among them.
        failed: of one that has ended and was not cancelled, the keys of the nodes that have failed; that of a map or
            batch for its children.
    """

    id: str
    record: FlowRecord
    nodes: int
    failed: frozenset[str] = frozenset()


class FlowPage(NamedTuple):
    """Some flows, the newest first; `after` is where the next page begins, None at the end."""

    entries: list[FlowEntry]
    after: FlowPlace | None


class BegunNode(msgspec.Struct, frozen=True):
    """The node is the caller's to run; larger than every earlier `token` of the flow."""

    token: int
    call: bytes


class BusyNode(msgspec.Struct, frozen=True):
    """Another worker runs the node, for `left` seconds at least unless it ends, or it may not start yet."""

    left: float


class EndedNode(msgspec.Struct, frozen=True):
    """The node has ended before, with this value."""

    state: NodeState
    value: bytes


class TakenNode(msgspec.Struct, frozen=True):
    """A node that is to be published, or a map that is to be expanded."""

    key: str
    kind: NodeKind
    call: bytes
    run: int


class Taken(msgspec.Struct, frozen=True):
    """What a taker is to publish; where `is_more`, there may be more to take after it."""

    nodes: tuple[TakenNode, ...]
    is_more: bool


class FlowStore(Protocol):
    """Workflows: graphs whose nodes end one by one.

    The end of a node counts once, however often it is reported and in whatever order. What became ready by it is
    handed out by `take` to one taker at a time, until that one says `done`; a taker that dies leaves it to itself,
    when it comes again with the same name, and to any taker after the lease. So a node may be published twice and is
    never forgotten; `start` lets one run of it begin at a time. Everything of a flow is forgotten `ttl` seconds after
    its last change. Every method raises `StateUnavailable` when the store cannot be reached; then it may have been
    done all the same, and may be called again.
    """

    async def create(self, flow_id: str, head: bytes, nodes: Sequence[FlowNode], *, ttl: float) -> bool:
        """Make a flow of nodes, each one after those that come before it; False where it exists already."""
        ...

    async def start(
        self, flow_id: str, node: str, *, owner: str, seconds: float, takes_over: bool
    ) -> BegunNode | BusyNode | EndedNode | None:
        """Let `owner` run a node for `seconds`; None where the flow or the node is not known (any more).

        Args:
            owner: a worker that holds the node already goes on under the same token.
            takes_over: the last runner of the node is known to have lost it.
        """
        ...

    async def renew(self, flow_id: str, node: str, *, token: int, seconds: float) -> bool:
        """Run the node for `seconds` from now on; False where another run has begun, or it has ended."""
        ...

    async def release(self, flow_id: str, node: str, *, token: int) -> None:
        """The run of that token has ended, and the node has not."""
        ...

    async def end(
        self, flow_id: str, node: str, *, token: int, state: NodeState, value: bytes, taker: str, lease: float
    ) -> Taken | None:
        """The node has ended, and `taker` takes what became ready by it, as with `take`.

        None, and nothing is changed, where another run has begun, the node has ended by another one, or the flow is
        not known (any more). Reported again by the same run it is answered as before.

        Args:
            token: of the run; 0 for a node that cannot be published, so that there is none.
        """
        ...

    async def take(self, flow_id: str, *, taker: str, lease: float, again: bool = False) -> Taken:
        """Some of the nodes that are to be published: no other taker gets them within `lease` seconds.

        Args:
            again: the taker may have taken before and not said `done`: it is given the same.
        """
        ...

    async def done(self, flow_id: str, keys: Sequence[str], *, taker: str, lease: float) -> Taken:
        """What was taken is published, or expanded; take more."""
        ...

    async def expand(self, flow_id: str, node: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
        """Give a map that was taken some of its children, from number `first` on; it waits for all `total` of them.

        The map has succeeded when all have, and failed when all have ended and one has not succeeded. Its value is
        their number. With the last child it is settled which there are: a map that was not given all has failed when
        those that it has have ended.
        """
        ...

    async def append(
        self, flow_id: str, node: str, calls: Sequence[bytes], *, name: str = "", closes: bool = False
    ) -> int | None:
        """Give a batch up to 100 more children; the number of the first one. They are to be taken afterwards.

        None, and nothing is changed, where the batch is closed or was cancelled, or is not known (any more).

        Args:
            name: repeated under the same one, it is answered as before and adds nothing; "": every time it adds.
            closes: these are the last ones: the batch ends when all its children have, as a map does. Called again
                without calls it is answered with their number.
        """
        ...

    async def cancel(self, flow_id: str, *, reason: str) -> list[str] | None:
        """End all nodes that have not ended and do not run; the keys of those that run. None: no such flow."""
        ...

    async def redrive(self, flow_id: str) -> int:
        """Have all nodes that have not succeeded wait for their turn anew; how many.

        0, and nothing is changed, where the flow has not ended, or all have succeeded, or there is none. What is
        ready is to be taken afterwards.
        """
        ...

    async def look(self, flow_id: str) -> FlowRecord | None:
        """The flow as a whole; None where it is not known (any more)."""
        ...

    async def entries(
        self,
        *,
        tenant: str | None = None,
        since: int | None = None,
        before: int | None = None,
        after: FlowPlace | None = None,
        limit: int = 100,
    ) -> FlowPage:
        """Flows that are known, the newest first.

        A flow is listed from the moment that it is known until it is forgotten. A page may have fewer than `limit`
        and not be the last one. Pages of a list that is gone through while flows are made show none twice.

        Args:
            tenant: whose: `""` those that have no tenant, None everybody's.
            since: made at this instant (ms) or later.
            before: made earlier than at this instant (ms).
            after: the `after` of the page before.
        """
        ...

    async def states(self, flow_id: str) -> dict[str, NodeState]:
        """The state of every node, children of maps and batches among them."""
        ...

    async def outcomes(self, flow_id: str, keys: Sequence[str]) -> list[EndedNode | None]:
        """How nodes have ended; None for one that has not, or is not known."""
        ...

    async def calls(self, flow_id: str, keys: Sequence[str]) -> list[bytes | None]:
        """What nodes were created with; None for one that is not known."""
        ...

    async def ended(self, flow_id: str, *, place: int, limit: int) -> list[str]:
        """The keys of up to `limit` nodes that have ended, in that order, after the first `place`.

        A node that was driven anew is there once for every time.
        """
        ...
