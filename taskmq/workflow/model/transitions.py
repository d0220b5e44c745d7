"""What a `FlowStore` does to one flow, for stores that do it in Python. Pure: instants are given, in ms."""

from collections.abc import Sequence
from typing import Final

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
from taskmq.workflow.model.state_machine import (
    FlowStateView,
    NodeClaim,
    advance,
    append,
    cancel_node,
    end_node,
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


def open_flow(view: FlowStateView, nodes: Sequence[FlowNode]) -> None:
    """All nodes are there: some are ready."""
    for node in nodes:
        if not node.after:
            open_node(view, node.key)
    if not nodes:
        view.offer(FINISH)


def start_run(
    view: FlowStateView, key: str, *, owner: str, until: int, takes_over: bool, now: int
) -> BegunNode | BusyNode | EndedNode | None:
    entry = view.find(key)
    if entry is None:
        return None
    if entry.state in ENDED_STATES:
        return EndedNode(entry.state, view.value(key))
    if entry.state is NodeState.WAITING:
        return BusyNode(_NOT_YET)
    claim = view.claim(key)
    if claim is not None and claim.until > now:
        if claim.owner == owner:
            return BegunNode(claim.token, view.call(key))
        if not takes_over:
            return BusyNode((claim.until - now) / 1000)
    token = view.next_token()
    view.set_claim(key, NodeClaim(token, owner, until))
    return BegunNode(token, view.call(key))


def renew_run(view: FlowStateView, key: str, *, token: int, until: int) -> bool:
    entry, claim = view.find(key), view.claim(key)
    if entry is None or entry.state in ENDED_STATES or claim is None or claim.token != token:
        return False
    view.set_claim(key, NodeClaim(token, claim.owner, until))
    return True


def release_run(view: FlowStateView, key: str, *, token: int) -> None:
    claim = view.claim(key)
    if claim is not None and claim.token == token:
        view.set_claim(key, NodeClaim(token, claim.owner, 0))


def end_run(
    view: FlowStateView, key: str, *, token: int, state: NodeState, value: bytes, taker: str, until: int, now: int
) -> Taken | None:
    entry, claim = view.find(key), view.claim(key)
    if entry is None:
        return None
    if (claim is None or claim.token != token) if token else (claim is not None and claim.until > now):
        return None
    if entry.state in ENDED_STATES:
        if entry.state is not state:
            return None
        return take_some(view, taker=taker, until=until, now=now, again=True)
    view.set_value(key, value)
    if claim is not None:
        view.set_claim(key, NodeClaim(claim.token, claim.owner, 0))
    end_node(view, entry, state)
    return take_some(view, taker=taker, until=until, now=now)


def take_some(view: FlowStateView, *, taker: str, until: int, now: int, again: bool = False) -> Taken:
    if again:
        view.take_back(taker)
    is_more = advance(view, _VISITS)
    found = view.offered(now=now, limit=_SOME)
    taken: list[TakenNode] = []
    run = view.run()
    for key in found:
        entry = view.find(key)
        if key == FINISH:
            taken.append(TakenNode(FINISH, "finish", b"", run))
        elif entry is None or entry.state is not NodeState.READY:
            view.withdraw(key)
            continue
        else:
            taken.append(TakenNode(key, entry.kind, view.call(key), run))
        view.give(key, taker, until)
    return Taken(tuple(taken), is_more or len(found) == _SOME)


def done_taken(view: FlowStateView, keys: Sequence[str], *, taker: str, until: int, now: int) -> Taken:
    for key in keys:
        view.withdraw(key)
    return take_some(view, taker=taker, until=until, now=now)


def expand_map(view: FlowStateView, key: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
    entry = view.find(key)
    if entry is not None and entry.kind == "map":
        expand(view, entry, calls, first=first, total=total)


def append_to_batch(view: FlowStateView, key: str, calls: Sequence[bytes], *, name: str, closes: bool) -> int | None:
    entry = view.find(key)
    if entry is None or entry.kind != "batch":
        return None
    return append(view, entry, calls, name=name, closes=closes)


def cancel_flow(view: FlowStateView, *, reason: str, now: int) -> list[str]:
    view.set_cancelled(reason)
    running: list[str] = []
    for key in view.unfinished():
        entry, claim = view.find(key), view.claim(key)
        if entry is None or entry.state in ENDED_STATES:
            continue
        if claim is not None and claim.until > now:
            running.append(key)
            continue
        view.set_value(key, reason.encode())
        cancel_node(view, entry)
    return running


def redrive_flow(view: FlowStateView) -> int:
    if view.unfinished():
        return 0
    keys = view.unsuccessful()
    if not keys:
        return 0
    view.set_cancelled(None)
    view.set_run(view.run() + 1)
    view.withdraw(FINISH)
    for key in keys:
        entry = view.find(key)
        if entry is not None:
            revive(view, entry)
    for key in keys:
        open_node(view, key)
    return len(keys)
