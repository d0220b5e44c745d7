"""Operations of a `FlowStore` on one flow, for stores that run them in Python. Pure: instants are passed in."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.stores.flows import (
    ENDED_STATES,
    FINISH,
    BegunNode,
    BusyNode,
    EndedNode,
    FlowNode,
    NodeState,
    Taken,
    TakenNode,
)
from taskmq.workflow.model.flow_view import FlowFacts, FlowView, Node, NodeClaim
from taskmq.workflow.model.state_machine import (
    advance,
    append,
    cancel_node,
    end_node,
    evaluate,
    expand,
    open_node,
    revive,
)

__all__ = [
    "append_to_batch",
    "cancel_flow",
    "done_taken",
    "end_run",
    "expand_map",
    "open_flow",
    "redrive_flow",
    "release_run",
    "renew_run",
    "start_run",
    "take_some",
]

_VISITS: Final = 500
_SOME: Final = 200
_NOT_YET: Final = 5.0
_OPEN: Final = frozenset(NodeState) - ENDED_STATES
_UNSUCCESSFUL: Final = ENDED_STATES - {NodeState.SUCCEEDED}


def open_flow(view: FlowView, nodes: Sequence[FlowNode]) -> None:
    """Evaluate a new flow's nodes: some are ready."""
    for node in nodes:
        if not node.after:
            open_node(view, Node(node.key, node.kind, node.rule, node.limit))
    if not nodes:
        view.offer(FINISH)


def start_run(
    view: FlowView, key: str, *, owner: str, until: int, takes_over: bool, now: int
) -> BegunNode | BusyNode | EndedNode | None:
    node = view.find(key)
    if node is None:
        return None
    if node.state in ENDED_STATES:
        return EndedNode(node.state, view.value(key))
    if node.state is NodeState.WAITING:
        return BusyNode(_NOT_YET)
    claim = node.claim
    if claim.until > now:
        if claim.owner == owner:
            return BegunNode(claim.token, view.call(key))
        if not takes_over:
            return BusyNode((claim.until - now) / 1000)
    run, last, cancelled = view.facts()
    token = last + 1
    view.put_facts(FlowFacts(run, token, cancelled))
    view.put(replace(node, claim=NodeClaim(token, owner, until)))
    return BegunNode(token, view.call(key))


def renew_run(view: FlowView, key: str, *, token: int, until: int) -> bool:
    node = view.find(key)
    if node is None or node.state in ENDED_STATES or not 0 < token == node.claim.token:
        return False
    view.put(replace(node, claim=NodeClaim(token, node.claim.owner, until)))
    return True


def release_run(view: FlowView, key: str, *, token: int) -> None:
    node = view.find(key)
    if node is not None and node.claim.token == token:
        view.put(replace(node, claim=NodeClaim(token, node.claim.owner)))


def end_run(
    view: FlowView, key: str, *, token: int, state: NodeState, value: bytes, taker: str, until: int, now: int
) -> Taken | None:
    node = view.find(key)
    if node is None:
        return None
    if node.claim.token != token if token else node.claim.until > now:
        return None
    if node.state in ENDED_STATES:
        if node.state is not state:
            return None
        return take_some(view, taker=taker, until=until, now=now, again=True)
    ended = replace(node, claim=NodeClaim(node.claim.token, node.claim.owner))
    end_node(view, ended, state, value)
    return take_some(view, taker=taker, until=until, now=now)


def take_some(view: FlowView, *, taker: str, until: int, now: int, again: bool = False) -> Taken:
    is_more = advance(view, _VISITS)
    leased = view.lease(taker, until=until, now=now, limit=_SOME, again=again)
    taken: list[TakenNode] = []
    run = view.facts().run
    for key in leased:
        if key == FINISH:
            taken.append(TakenNode(FINISH, "finish", b"", run))
            continue
        node = view.find(key)
        if node is None or node.state is not NodeState.READY:
            view.withdraw(key)
        else:
            taken.append(TakenNode(key, node.kind, view.call(key), run))
    return Taken(tuple(taken), is_more or len(leased) == _SOME)


def done_taken(view: FlowView, keys: Sequence[str], *, taker: str, until: int, now: int) -> Taken:
    for key in keys:
        view.withdraw(key)
    return take_some(view, taker=taker, until=until, now=now)


def expand_map(view: FlowView, key: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
    node = view.find(key)
    if node is not None and node.kind == "map":
        expand(view, node, calls, first=first, total=total)


def append_to_batch(view: FlowView, key: str, calls: Sequence[bytes], *, name: str, closes: bool) -> int | None:
    node = view.find(key)
    if node is None or node.kind != "batch":
        return None
    return append(view, node, calls, name=name, closes=closes)


def cancel_flow(view: FlowView, *, reason: str, now: int) -> list[str]:
    run, token, _ = view.facts()
    view.put_facts(FlowFacts(run, token, reason))
    running: list[str] = []
    for node in view.with_states(_OPEN):
        if node.claim.until > now:
            running.append(node.key)
        else:
            cancel_node(view, node, reason.encode())
    return running


def redrive_flow(view: FlowView) -> int:
    nodes = view.with_states(_UNSUCCESSFUL)
    if not nodes or view.with_states(_OPEN):
        return 0
    run, token, _ = view.facts()
    view.put_facts(FlowFacts(run + 1, token))
    view.withdraw(FINISH)
    for node in [revive(view, node) for node in nodes]:
        evaluate(view, node, is_complete=view.is_complete(node), is_hit=True)
    return len(nodes)
