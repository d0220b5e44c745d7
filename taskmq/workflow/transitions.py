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
from taskmq.workflow.state_machine import Board, Claim, advance, cancel_node, end_node, expand, open_node, revive

__all__ = [
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


def open_flow(board: Board, nodes: Sequence[FlowNode]) -> None:
    """All nodes are there: some are ready."""
    for node in nodes:
        if not node.after:
            open_node(board, node.key)
    if not nodes:
        board.offer(FINISH)


def start_run(
    board: Board, key: str, *, owner: str, until: int, takes_over: bool, now: int
) -> BegunNode | BusyNode | EndedNode | None:
    entry = board.find(key)
    if entry is None:
        return None
    if entry.state in ENDED_STATES:
        return EndedNode(entry.state, board.value(key))
    if entry.state is NodeState.WAITING:
        return BusyNode(_NOT_YET)
    claim = board.claim(key)
    if claim is not None and claim.until > now:
        if claim.owner == owner:
            return BegunNode(claim.token, board.call(key))
        if not takes_over:
            return BusyNode((claim.until - now) / 1000)
    token = board.next_token()
    board.set_claim(key, Claim(token, owner, until))
    return BegunNode(token, board.call(key))


def renew_run(board: Board, key: str, *, token: int, until: int) -> bool:
    entry, claim = board.find(key), board.claim(key)
    if entry is None or entry.state in ENDED_STATES or claim is None or claim.token != token:
        return False
    board.set_claim(key, Claim(token, claim.owner, until))
    return True


def release_run(board: Board, key: str, *, token: int) -> None:
    claim = board.claim(key)
    if claim is not None and claim.token == token:
        board.set_claim(key, Claim(token, claim.owner, 0))


def end_run(
    board: Board, key: str, *, token: int, state: NodeState, value: bytes, taker: str, until: int, now: int
) -> Taken | None:
    entry, claim = board.find(key), board.claim(key)
    if entry is None:
        return None
    if (claim is None or claim.token != token) if token else (claim is not None and claim.until > now):
        return None
    if entry.state in ENDED_STATES:
        if entry.state is not state:
            return None
        return take_some(board, taker=taker, until=until, now=now, again=True)
    board.set_value(key, value)
    if claim is not None:
        board.set_claim(key, Claim(claim.token, claim.owner, 0))
    end_node(board, entry, state)
    return take_some(board, taker=taker, until=until, now=now)


def take_some(board: Board, *, taker: str, until: int, now: int, again: bool = False) -> Taken:
    if again:
        board.take_back(taker)
    is_more = advance(board, _VISITS)
    found = board.offered(now=now, limit=_SOME)
    taken: list[TakenNode] = []
    run = board.run()
    for key in found:
        entry = board.find(key)
        if key == FINISH:
            taken.append(TakenNode(FINISH, "finish", b"", run))
        elif entry is None or entry.state is not NodeState.READY:
            board.withdraw(key)
            continue
        else:
            taken.append(TakenNode(key, entry.kind, board.call(key), run))
        board.give(key, taker, until)
    return Taken(tuple(taken), is_more or len(found) == _SOME)


def done_taken(board: Board, keys: Sequence[str], *, taker: str, until: int, now: int) -> Taken:
    for key in keys:
        board.withdraw(key)
    return take_some(board, taker=taker, until=until, now=now)


def expand_map(board: Board, key: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
    entry = board.find(key)
    if entry is not None and entry.kind == "map":
        expand(board, entry, calls, first=first, total=total)


def cancel_flow(board: Board, *, reason: str, now: int) -> list[str]:
    board.set_cancelled(reason)
    running: list[str] = []
    for key in board.unfinished():
        entry, claim = board.find(key), board.claim(key)
        if entry is None or entry.state in ENDED_STATES:
            continue
        if claim is not None and claim.until > now:
            running.append(key)
            continue
        board.set_value(key, reason.encode())
        cancel_node(board, entry)
    return running


def redrive_flow(board: Board) -> int:
    if board.unfinished():
        return 0
    keys = board.unsuccessful()
    if not keys:
        return 0
    board.set_cancelled(None)
    board.set_run(board.run() + 1)
    board.withdraw(FINISH)
    for key in keys:
        entry = board.find(key)
        if entry is not None:
            revive(board, entry)
    for key in keys:
        open_node(board, key)
    return len(keys)
