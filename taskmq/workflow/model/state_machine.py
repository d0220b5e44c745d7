"""What follows from the end of a node: the state machine of workflows, over whatever keeps their nodes. Pure.

    end(node) -> to visit: those after it -> each one is ready, ends without a start, or waits on
                                              ready: published by its taker
                                              ended: those after it are to be visited as well

What is to be visited and what is to be published are lists of the board, so the next worker goes on where another
has stopped. Every step may be done twice. Nothing is counted: who has arrived is a set, so a node that ends twice
arrives once.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from taskmq.contracts.stores.flows import ENDED_STATES, FINISH, NodeKind, NodeState, Rule
from taskmq.workflow.model.rules import ParentCounts, decide

__all__ = [
    "FlowStateView",
    "NodeClaim",
    "NodeView",
    "advance",
    "append",
    "cancel_node",
    "end_node",
    "expand",
    "open_node",
    "revive",
]


_NEXT: Final = ""


class NodeView(Protocol):
    """What the machine looks at of a node.

    Attributes:
        total: of a map that was expanded, or a batch that was closed, how many children it has; None of all others.
        lane: of a child, the key of its map or batch where that has a limit; otherwise "".
    """

    @property
    def key(self) -> str: ...

    @property
    def kind(self) -> NodeKind: ...

    @property
    def rule(self) -> Rule: ...

    @property
    def state(self) -> NodeState: ...

    @property
    def total(self) -> int | None: ...

    @property
    def lane(self) -> str: ...

    @property
    def limit(self) -> int: ...


class NodeClaim(NamedTuple):
    """The worker that runs a node, or ran it last; `until` in ms, 0 where none does."""

    token: int
    owner: str
    until: int


class FlowStateView(Protocol):
    """What the state machine reads of one workflow, and what it changes there."""

    def run(self) -> int: ...

    def set_run(self, run: int) -> None: ...

    def next_token(self) -> int: ...

    def cancelled(self) -> str | None: ...

    def set_cancelled(self, reason: str | None) -> None: ...

    def call(self, key: str) -> bytes: ...

    def value(self, key: str) -> bytes: ...

    def claim(self, key: str) -> NodeClaim | None: ...

    def set_claim(self, key: str, claim: NodeClaim) -> None: ...

    def unfinished(self) -> list[str]: ...

    def unsuccessful(self) -> list[str]: ...

    def offered(self, *, now: int, limit: int) -> list[str]:
        """Up to `limit` nodes that are to be published and that no taker has leased."""
        ...

    def give(self, key: str, taker: str, until: int) -> None:
        """What is to be published is `taker`'s until then."""
        ...

    def take_back(self, taker: str) -> None:
        """Return everything that `taker` has leased."""
        ...

    def find(self, key: str) -> NodeView | None: ...

    def set_state(self, key: str, state: NodeState) -> None: ...

    def set_value(self, key: str, value: bytes) -> None: ...

    def set_total(self, key: str, total: int) -> None: ...

    def add_child(self, entry: NodeView, number: int, call: bytes) -> str | None:
        """Add a child of a map or a batch, which waits; None where it is there already."""
        ...

    def appended(self, key: str, name: str) -> int | None:
        """What was noted for a batch under a name."""
        ...

    def note_appended(self, key: str, name: str, number: int) -> None: ...

    def after(self, key: str, start: int, limit: int) -> list[str]:
        """Up to `limit` of the nodes after one, from number `start` on."""
        ...

    def arrive(self, key: str, before: str) -> None:
        """`before`, which is before `key`, has ended."""
        ...

    def leave(self, key: str, before: str) -> None:
        """`before` has not ended any more."""
        ...

    def is_complete(self, entry: NodeView) -> bool:
        """Whether all before the node have arrived; where it has a `total`, all its children."""
        ...

    def parents(self, entry: NodeView) -> ParentCounts:
        """How those that have arrived have ended."""
        ...

    def to_visit(self) -> tuple[str, int] | None:
        """One of the nodes that have ended and whose followers are to be visited, from this number on."""
        ...

    def visit_from(self, key: str, start: int | None) -> None:
        """Where to go on; None: all were visited."""
        ...

    def offer(self, key: str) -> None:
        """Put the node on the list to publish."""
        ...

    def withdraw(self, key: str) -> None:
        """Take the node off the list to publish."""
        ...

    def enter_lane(self, lane: str, key: str, limit: int) -> bool:
        """Whether there was room in the lane; otherwise the node waits for its turn."""
        ...

    def leave_lane(self, lane: str, key: str, limit: int) -> str | None:
        """The node is in the lane no more, nor waits for it; the next one that has entered instead."""
        ...

    def note_end(self, key: str) -> bool:
        """The node has ended; whether all have."""
        ...

    def note_revival(self, key: str) -> None:
        """The node has not ended any more."""
        ...


def open_node(view: FlowStateView, key: str) -> None:
    """A node that has just been made, or waits anew: it may be ready already."""
    entry = view.find(key)
    if entry is not None:
        _evaluate(view, entry)


def end_node(view: FlowStateView, entry: NodeView, state: NodeState) -> None:
    """The node has ended."""
    view.set_state(entry.key, state)
    view.withdraw(entry.key)
    view.visit_from(entry.key, 0)
    _close(view, entry)


def advance(view: FlowStateView, budget: int) -> bool:
    """Visit up to `budget` followers of nodes that have ended; whether some are left."""
    while (found := view.to_visit()) is not None:
        if budget <= 0:
            return True
        key, start = found
        ended = view.find(key)
        is_hit = ended is not None and ended.state is NodeState.SUCCEEDED
        followers = view.after(key, start, budget)
        for follower in followers:
            # Recorded also where it has ended: it may be driven anew.
            view.arrive(follower, key)
            entry = view.find(follower)
            if entry is not None and entry.state not in ENDED_STATES:
                _evaluate(view, entry, is_hit=is_hit)
        view.visit_from(key, start + len(followers) if len(followers) == budget else None)
        budget -= max(len(followers), 1)
    return False


def expand(view: FlowStateView, entry: NodeView, calls: Sequence[bytes], *, first: int, total: int) -> None:
    """Add children to a map; with the last of them it waits for all. Nothing where it is expanded already."""
    if entry.state is not NodeState.READY or entry.total is not None:
        return
    _add_children(view, entry, calls, first)
    if first + len(calls) >= total:
        _has_all_children(view, entry.key, total)


def append(view: FlowStateView, entry: NodeView, calls: Sequence[bytes], *, name: str, closes: bool) -> int | None:
    """Add children to a batch; with the last of them it waits for all. The number of the first one.

    None where it is closed or has ended. Reported again under the same name it is answered as before; a batch that is
    closed, and is to be closed, answers how many there are.
    """
    if name and (earlier := view.appended(entry.key, name)) is not None:
        return earlier
    if entry.total is not None and closes and not calls:
        return entry.total
    if entry.state is not NodeState.READY or entry.total is not None:
        return None
    first = view.appended(entry.key, _NEXT) or 0
    total = first + len(calls)
    _add_children(view, entry, calls, first)
    view.note_appended(entry.key, _NEXT, total)
    if name:
        view.note_appended(entry.key, name, first)
    if closes:
        _has_all_children(view, entry.key, total)
    return first


def cancel_node(view: FlowStateView, entry: NodeView) -> None:
    """End a node of a flow that was cancelled. No node after it has to know: they are cancelled as well."""
    view.set_state(entry.key, NodeState.CANCELLED)
    view.withdraw(entry.key)
    _close(view, entry)


def revive(view: FlowStateView, entry: NodeView) -> None:
    """Have a node that has ended without success wait anew; those after it have not seen its end."""
    # Children stay: their number must not change, and those that have succeeded are done.
    has_children = entry.total is not None or entry.kind == "batch"
    view.set_state(entry.key, NodeState.READY if has_children else NodeState.WAITING)
    view.note_revival(entry.key)
    view.visit_from(entry.key, None)
    start = 0
    while followers := view.after(entry.key, start, 1000):
        for follower in followers:
            view.leave(follower, entry.key)
        start += len(followers)


def _evaluate(view: FlowStateView, entry: NodeView, *, is_hit: bool = True) -> None:
    """Decide about a node that has not ended; `is_hit`: one before it may have succeeded since the last time."""
    is_complete = view.is_complete(entry)
    if entry.total is not None:
        if is_complete and entry.state is NodeState.READY:
            parents = view.parents(entry)
            is_good = parents.succeeded == entry.total
            end_node(view, entry, NodeState.SUCCEEDED if is_good else NodeState.FAILED)
        return
    if entry.state is not NodeState.WAITING or (not is_complete and not (is_hit and entry.rule == "any")):
        return
    match decide(entry.rule, view.parents(entry), is_complete=is_complete):
        case NodeState.READY if entry.kind == "join":
            end_node(view, entry, NodeState.SUCCEEDED)
        case NodeState.READY if entry.kind == "batch":
            view.set_state(entry.key, NodeState.READY)
        case NodeState.READY:
            view.set_state(entry.key, NodeState.READY)
            if not entry.lane or view.enter_lane(entry.lane, entry.key, entry.limit):
                view.offer(entry.key)
        case NodeState.WAITING:
            pass
        case state:
            end_node(view, entry, state)


def _add_children(view: FlowStateView, entry: NodeView, calls: Sequence[bytes], first: int) -> None:
    for number, call in enumerate(calls, first):
        key = view.add_child(entry, number, call)
        if key is not None:
            open_node(view, key)


def _has_all_children(view: FlowStateView, key: str, total: int) -> None:
    """A map or a batch has all its children, which may all have ended."""
    view.set_total(key, total)
    view.set_value(key, str(total).encode())
    open_node(view, key)


def _close(view: FlowStateView, entry: NodeView) -> None:
    if entry.lane and (following := view.leave_lane(entry.lane, entry.key, entry.limit)) is not None:
        view.offer(following)
    if view.note_end(entry.key):
        view.offer(FINISH)
