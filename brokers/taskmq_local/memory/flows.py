"""Workflows, in this process."""

import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from taskmq.contracts.stores.flows import (
    ENDED_STATES,
    BegunNode,
    BusyNode,
    EndedNode,
    FlowEntry,
    FlowNode,
    FlowPage,
    FlowPlace,
    FlowRecord,
    NodeKind,
    NodeState,
    Rule,
    Taken,
)
from taskmq.model.clock import Clock
from taskmq.model.keys import split_tenant_key
from taskmq.workflow.model.rules import ParentCounts
from taskmq.workflow.model.state_machine import NodeClaim, NodeView
from taskmq.workflow.model.transitions import (
    append_to_batch,
    cancel_flow,
    done_taken,
    end_run,
    expand_map,
    open_flow,
    redrive_flow,
    release_run,
    renew_run,
    start_run,
    take_some,
)

__all__ = ["FlowShelf", "MemoryFlowState", "MemoryFlows"]


class _Node(msgspec.Struct):
    key: str
    kind: NodeKind
    rule: Rule
    call: bytes
    limit: int
    missing: set[str]
    lane: str = ""
    state: NodeState = NodeState.WAITING
    total: int | None = None
    value: bytes = b""
    claim: NodeClaim | None = None
    after: list[str] = msgspec.field(default_factory=list[str])
    succeeded: set[str] = msgspec.field(default_factory=set[str])
    failed: set[str] = msgspec.field(default_factory=set[str])
    other: set[str] = msgspec.field(default_factory=set[str])


class _Lane(msgspec.Struct):
    inside: set[str] = msgspec.field(default_factory=set[str])
    waiting: deque[str] = msgspec.field(default_factory=deque[str])


class MemoryFlowState:
    """One flow: a `taskmq.workflow.model.state_machine.Board`."""

    def __init__(self, head: bytes, nodes: Sequence[FlowNode], *, ttl: int) -> None:
        self.head = head
        self.ttl = ttl
        self.expires = 0
        self.started = 0
        self.ends: list[str] = []
        self._run = 0
        self._token = 0
        self._cancelled: str | None = None
        self._nodes: dict[str, _Node] = {}
        self._visits: dict[str, int] = {}
        self._outbox: dict[str, tuple[str, int]] = {}
        self._free: dict[str, None] = {}
        self._lanes: dict[str, _Lane] = {}
        self._appended: dict[tuple[str, str], int] = {}
        self._unfinished: dict[str, None] = {}
        self._unsuccessful: dict[str, None] = {}
        for node in nodes:
            self._add(_Node(node.key, node.kind, node.rule, node.call, node.limit, set(node.after)))
            for before in node.after:
                self._nodes[before].after.append(node.key)

    def run(self) -> int:
        return self._run

    def set_run(self, run: int) -> None:
        self._run = run

    def next_token(self) -> int:
        self._token += 1
        return self._token

    def cancelled(self) -> str | None:
        return self._cancelled

    def set_cancelled(self, reason: str | None) -> None:
        self._cancelled = reason

    def find(self, key: str) -> _Node | None:
        return self._nodes.get(key)

    def call(self, key: str) -> bytes:
        return self._nodes[key].call

    def value(self, key: str) -> bytes:
        return self._nodes[key].value

    def claim(self, key: str) -> NodeClaim | None:
        node = self._nodes.get(key)
        return None if node is None else node.claim

    def set_claim(self, key: str, claim: NodeClaim) -> None:
        self._nodes[key].claim = claim

    def set_state(self, key: str, state: NodeState) -> None:
        self._nodes[key].state = state

    def set_value(self, key: str, value: bytes) -> None:
        self._nodes[key].value = value

    def set_total(self, key: str, total: int) -> None:
        node = self._nodes[key]
        node.total = total
        # From here on its children are what it waits for.
        prefix = f"{key}."
        for arrived in (node.succeeded, node.failed, node.other):
            arrived.intersection_update([each for each in arrived if each.startswith(prefix)])

    def add_child(self, entry: NodeView, number: int, call: bytes) -> str | None:
        key = f"{entry.key}.{number}"
        if key in self._nodes:
            return None
        lane = entry.key if entry.limit else ""
        self._add(_Node(key, "call", "all", call, entry.limit, set(), lane, after=[entry.key]))
        self._nodes[entry.key].missing.add(key)
        return key

    def appended(self, key: str, name: str) -> int | None:
        return self._appended.get((key, name))

    def note_appended(self, key: str, name: str, number: int) -> None:
        self._appended[key, name] = number

    def after(self, key: str, start: int, limit: int) -> list[str]:
        return self._nodes[key].after[start : start + limit]

    def arrive(self, key: str, before: str) -> None:
        node = self._nodes[key]
        node.missing.discard(before)
        if node.total is not None and not before.startswith(f"{key}."):
            return
        match self._nodes[before].state:
            case NodeState.SUCCEEDED:
                node.succeeded.add(before)
            case NodeState.FAILED | NodeState.UPSTREAM_FAILED:
                node.failed.add(before)
            case _:
                node.other.add(before)

    def leave(self, key: str, before: str) -> None:
        node = self._nodes[key]
        node.missing.add(before)
        node.succeeded.discard(before)
        node.failed.discard(before)
        node.other.discard(before)

    def is_complete(self, entry: NodeView) -> bool:
        return not self._nodes[entry.key].missing

    def parents(self, entry: NodeView) -> ParentCounts:
        node = self._nodes[entry.key]
        return ParentCounts(len(node.succeeded), len(node.failed), len(node.other))

    def to_visit(self) -> tuple[str, int] | None:
        return next(iter(self._visits.items()), None)

    def visit_from(self, key: str, start: int | None) -> None:
        if start is None:
            self._visits.pop(key, None)
        else:
            self._visits[key] = start

    def offer(self, key: str) -> None:
        self._outbox.pop(key, None)
        self._free[key] = None

    def withdraw(self, key: str) -> None:
        self._free.pop(key, None)
        self._outbox.pop(key, None)

    def offered(self, *, now: int, limit: int) -> list[str]:
        for key in [key for key, (_, until) in self._outbox.items() if until <= now]:
            self.offer(key)
        return [key for key, _ in zip(self._free, range(limit), strict=False)]

    def give(self, key: str, taker: str, until: int) -> None:
        self._free.pop(key, None)
        self._outbox[key] = (taker, until)

    def take_back(self, taker: str) -> None:
        for key in [key for key, (holder, _) in self._outbox.items() if holder == taker]:
            self.offer(key)

    def enter_lane(self, lane: str, key: str, limit: int) -> bool:
        found = self._lanes.setdefault(lane, _Lane())
        if len(found.inside) < limit:
            found.inside.add(key)
            return True
        found.waiting.append(key)
        return False

    def leave_lane(self, lane: str, key: str, limit: int) -> str | None:
        found = self._lanes.setdefault(lane, _Lane())
        found.inside.discard(key)
        while found.waiting and len(found.inside) < limit:
            following = found.waiting.popleft()
            if self._nodes[following].state is NodeState.READY:
                found.inside.add(following)
                return following
        return None

    def note_end(self, key: str) -> bool:
        self._unfinished.pop(key, None)
        if self._nodes[key].state is not NodeState.SUCCEEDED:
            self._unsuccessful[key] = None
        self.ends.append(key)
        return not self._unfinished

    def note_revival(self, key: str) -> None:
        self._unsuccessful.pop(key, None)
        self._unfinished[key] = None

    def unfinished(self) -> list[str]:
        return [*self._unfinished]

    def unsuccessful(self) -> list[str]:
        return [*self._unsuccessful]

    def record(self) -> FlowRecord:
        left = len(self._unfinished)
        return FlowRecord(
            head=self.head, run=self._run, unfinished=left, cancelled=self._cancelled, started=self.started
        )

    def failed(self) -> frozenset[str]:
        those = (key for key in self._unsuccessful if self._nodes[key].state is NodeState.FAILED)
        return frozenset(key.partition(".")[0] for key in those)

    def nodes(self) -> list[_Node]:
        return [*self._nodes.values()]

    def _add(self, node: _Node) -> None:
        self._nodes[node.key] = node
        self._unfinished[node.key] = None


class FlowShelf:
    """The flows of a hub. Used by several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._flows: dict[str, MemoryFlowState] = {}

    def add(self, flow_id: str, view: MemoryFlowState, *, now: int) -> bool:
        self._drop_expired(now)
        if flow_id in self._flows:
            return False
        self._flows[flow_id] = view
        view.started, view.expires = now, now + view.ttl
        return True

    def change(self, flow_id: str, *, now: int) -> MemoryFlowState | None:
        """A flow that is about to change, and is kept for longer by that."""
        view = self.find(flow_id, now=now)
        if view is not None:
            view.expires = now + view.ttl
        return view

    def find(self, flow_id: str, *, now: int) -> MemoryFlowState | None:
        view = self._flows.get(flow_id)
        return None if view is None or view.expires <= now else view

    def known(self, *, now: int) -> list[tuple[FlowPlace, MemoryFlowState]]:
        """All flows, the newest first."""
        there = [(FlowPlace(view.started, key), view) for key, view in self._flows.items() if view.expires > now]
        return sorted(there, key=lambda one: one[0], reverse=True)

    def clear(self) -> None:
        with self.lock:
            self._flows.clear()

    def _drop_expired(self, now: int) -> None:
        for flow_id in [flow_id for flow_id, view in self._flows.items() if view.expires <= now]:
            del self._flows[flow_id]


class MemoryFlows:
    """A `taskmq.stores.FlowStore`.

    Args:
        check_open: raises when the state was closed.
    """

    def __init__(self, shelf: FlowShelf, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._shelf = shelf
        self._clock = clock
        self._check_open = check_open

    async def create(self, flow_id: str, head: bytes, nodes: Sequence[FlowNode], *, ttl: float) -> bool:
        now = self._now()
        view = MemoryFlowState(head, nodes, ttl=round(ttl * 1000))
        with self._shelf.lock:
            if not self._shelf.add(flow_id, view, now=now):
                return False
            open_flow(view, nodes)
            return True

    async def start(
        self, flow_id: str, node: str, *, owner: str, seconds: float, takes_over: bool
    ) -> BegunNode | BusyNode | EndedNode | None:
        now = self._now()
        with self._shelf.lock:
            if (view := self._shelf.change(flow_id, now=now)) is None:
                return None
            until = now + round(seconds * 1000)
            return start_run(view, node, owner=owner, until=until, takes_over=takes_over, now=now)

    async def renew(self, flow_id: str, node: str, *, token: int, seconds: float) -> bool:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.change(flow_id, now=now)
            if view is None or view.find(node) is None:
                return False
            return renew_run(view, node, token=token, until=now + round(seconds * 1000))

    async def release(self, flow_id: str, node: str, *, token: int) -> None:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.change(flow_id, now=now)
            if view is not None and view.find(node) is not None:
                release_run(view, node, token=token)

    async def end(
        self, flow_id: str, node: str, *, token: int, state: NodeState, value: bytes, taker: str, lease: float
    ) -> Taken | None:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.change(flow_id, now=now)
            if view is None or view.find(node) is None:
                return None
            until = now + round(lease * 1000)
            return end_run(view, node, token=token, state=state, value=value, taker=taker, until=until, now=now)

    async def take(self, flow_id: str, *, taker: str, lease: float, again: bool = False) -> Taken:
        now = self._now()
        with self._shelf.lock:
            if (view := self._shelf.change(flow_id, now=now)) is None:
                return Taken((), is_more=False)
            return take_some(view, taker=taker, until=now + round(lease * 1000), now=now, again=again)

    async def done(self, flow_id: str, keys: Sequence[str], *, taker: str, lease: float) -> Taken:
        now = self._now()
        with self._shelf.lock:
            if (view := self._shelf.change(flow_id, now=now)) is None:
                return Taken((), is_more=False)
            return done_taken(view, keys, taker=taker, until=now + round(lease * 1000), now=now)

    async def expand(self, flow_id: str, node: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
        now = self._now()
        with self._shelf.lock:
            if (view := self._shelf.change(flow_id, now=now)) is not None:
                expand_map(view, node, calls, first=first, total=total)

    async def append(
        self, flow_id: str, node: str, calls: Sequence[bytes], *, name: str = "", closes: bool = False
    ) -> int | None:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.change(flow_id, now=now)
            return None if view is None else append_to_batch(view, node, calls, name=name, closes=closes)

    async def cancel(self, flow_id: str, *, reason: str) -> list[str] | None:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.change(flow_id, now=now)
            return None if view is None else cancel_flow(view, reason=reason, now=now)

    async def redrive(self, flow_id: str) -> int:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.change(flow_id, now=now)
            return 0 if view is None else redrive_flow(view)

    async def look(self, flow_id: str) -> FlowRecord | None:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.find(flow_id, now=now)
            return None if view is None else view.record()

    async def entries(
        self,
        *,
        tenant: str | None = None,
        since: int | None = None,
        before: int | None = None,
        after: FlowPlace | None = None,
        limit: int = 100,
    ) -> FlowPage:
        now = self._now()
        with self._shelf.lock:
            found = [
                (place, view)
                for place, view in self._shelf.known(now=now)
                if (tenant is None or split_tenant_key(place.flow_id)[0] == tenant)
                and (since is None or place.started >= since)
                and (before is None or place.started < before)
                and (after is None or place < after)
            ]
            page = found[:limit]
            entries = [_entry(place.flow_id, view) for place, view in page]
        return FlowPage(entries, page[-1][0] if len(found) > limit else None)

    async def states(self, flow_id: str) -> dict[str, NodeState]:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.find(flow_id, now=now)
            return {} if view is None else {node.key: node.state for node in view.nodes()}

    async def outcomes(self, flow_id: str, keys: Sequence[str]) -> list[EndedNode | None]:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.find(flow_id, now=now)
            found = [None if view is None else view.find(key) for key in keys]
            return [
                None if node is None or node.state not in ENDED_STATES else EndedNode(node.state, node.value)
                for node in found
            ]

    async def calls(self, flow_id: str, keys: Sequence[str]) -> list[bytes | None]:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.find(flow_id, now=now)
            found = [None if view is None else view.find(key) for key in keys]
            return [None if node is None else node.call for node in found]

    async def ended(self, flow_id: str, *, place: int, limit: int) -> list[str]:
        now = self._now()
        with self._shelf.lock:
            view = self._shelf.find(flow_id, now=now)
            return [] if view is None else view.ends[place : place + limit]

    def _now(self) -> int:
        self._check_open()
        return self._clock.now_ms()


def _entry(flow_id: str, view: MemoryFlowState) -> FlowEntry:
    record = view.record()
    has_ended = record.unfinished == 0 and record.cancelled is None
    failed = view.failed() if has_ended else frozenset[str]()
    return FlowEntry(id=flow_id, record=record, nodes=len(view.nodes()), failed=failed)
