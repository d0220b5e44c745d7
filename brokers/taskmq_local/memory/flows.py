"""Workflows, in this process."""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from taskmq.contracts.stores.flows import (
    ENDED_STATES,
    EndedNode,
    FlowCursor,
    FlowEntry,
    FlowNode,
    FlowPage,
    FlowRecord,
    NodeState,
)
from taskmq.model.clock import Clock
from taskmq.model.keys import split_tenant_key
from taskmq.workflow.model.flow_view import FlowFacts, FlowView, Node
from taskmq.workflow.model.rules import ParentCounts
from taskmq.workflow.model.transitions import open_flow
from taskmq_local.rules.flows import FlowChanges

__all__ = ["FlowTable", "MemoryFlow", "MemoryFlows"]

T = TypeVar("T")

_BAD: Final = (NodeState.FAILED, NodeState.UPSTREAM_FAILED)
_FAILED: Final = frozenset({NodeState.FAILED})


class _Awaited(msgspec.Struct):
    """Predecessors that a node waits for, or the children of a map or batch."""

    missing: set[str] = msgspec.field(default_factory=set[str])
    ended: dict[str, NodeState] = msgspec.field(default_factory=dict[str, NodeState])


class _Turns(msgspec.Struct):
    out: set[str] = msgspec.field(default_factory=set[str])
    waiting: dict[str, None] = msgspec.field(default_factory=dict[str, None])


class MemoryFlow:
    """A flow as a `taskmq.workflow.model.flow_view.FlowView`."""

    def __init__(self, head: bytes, nodes: Sequence[FlowNode], *, ttl: int) -> None:
        self.head = head
        self.ttl = ttl
        self.expires = 0
        self.started = 0
        self.ends: list[str] = []
        self.nodes: dict[str, Node] = {}
        self._facts = FlowFacts()
        self._calls: dict[str, bytes] = {}
        self._values: dict[str, bytes] = {}
        self._after: defaultdict[str, list[str]] = defaultdict(list)
        # By node key; children of a map or batch by its key and a dot.
        self._awaited: defaultdict[str, _Awaited] = defaultdict(_Awaited)
        self._visits: dict[str, None] = {}
        self._offered: dict[str, None] = {}
        self._leased: dict[str, tuple[str, int]] = {}
        self._turns: defaultdict[str, _Turns] = defaultdict(_Turns)
        self._appended: dict[tuple[str, str], int] = {}
        self._unfinished: dict[str, None] = {}
        for node in nodes:
            self._add(Node(node.key, node.kind, node.rule, node.limit), node.call)
            for before in node.after:
                self._awaited[node.key].missing.add(before)
                self._after[before].append(node.key)

    def facts(self) -> FlowFacts:
        return self._facts

    def put_facts(self, facts: FlowFacts) -> None:
        self._facts = facts

    def find(self, key: str) -> Node | None:
        return self.nodes.get(key)

    def call(self, key: str) -> bytes:
        return self._calls[key]

    def value(self, key: str) -> bytes:
        return self._values.get(key, b"")

    def with_states(self, states: frozenset[NodeState]) -> list[Node]:
        return [node for node in self.nodes.values() if node.state in states]

    def put(self, node: Node, value: bytes | None = None) -> None:
        self.nodes[node.key] = node
        if value is not None:
            self._values[node.key] = value
        if node.visit is None:
            self._visits.pop(node.key, None)
        else:
            self._visits[node.key] = None

    def end(self, node: Node, value: bytes | None = None) -> bool:
        self.put(node, value)
        self.withdraw(node.key)
        self._unfinished.pop(node.key, None)
        self.ends.append(node.key)
        return not self._unfinished

    def add_child(self, child: Node, call: bytes) -> bool:
        if child.key in self.nodes:
            return False
        self._add(child, call)
        self._after[child.key].append(child.parent)
        self._awaited[f"{child.parent}."].missing.add(child.key)
        return True

    def to_visit(self) -> Node | None:
        for key in self._visits:
            return self.nodes[key]
        return None

    def arrive(self, node: Node, limit: int) -> list[tuple[Node, bool]]:
        start = node.visit or 0
        arrived: list[tuple[Node, bool]] = []
        for key in self._after[node.key][start : start + limit]:
            awaited = self._awaited[f"{key}." if node.parent else key]
            awaited.missing.discard(node.key)
            awaited.ended[node.key] = node.state
            follower = self.nodes[key]
            arrived.append((follower, self.is_complete(follower)))
        return arrived

    def revive(self, node: Node) -> None:
        self.put(node)
        self._unfinished[node.key] = None
        for key in self._after[node.key]:
            awaited = self._awaited[f"{key}." if node.parent else key]
            awaited.missing.add(node.key)
            awaited.ended.pop(node.key, None)

    def is_complete(self, node: Node) -> bool:
        return not self._awaited_by(node).missing

    def parents(self, node: Node) -> ParentCounts:
        states = [*self._awaited_by(node).ended.values()]
        good, bad = states.count(NodeState.SUCCEEDED), sum(map(states.count, _BAD))
        return ParentCounts(good, bad, len(states) - good - bad)

    def find_appended(self, key: str, name: str) -> int | None:
        return self._appended.get((key, name))

    def note_appended(self, key: str, name: str, number: int) -> None:
        self._appended[key, name] = number

    def offer(self, key: str) -> None:
        self._leased.pop(key, None)
        self._offered[key] = None

    def withdraw(self, key: str) -> None:
        self._offered.pop(key, None)
        self._leased.pop(key, None)

    def lease(self, taker: str, *, until: int, now: int, limit: int, again: bool) -> list[str]:
        for key in [key for key, (had, end) in self._leased.items() if end <= now or (again and had == taker)]:
            self.offer(key)
        leased = [*islice(self._offered, limit)]
        for key in leased:
            del self._offered[key]
            self._leased[key] = taker, until
        return leased

    def take_turn(self, child: Node) -> bool:
        turns = self._turns[child.parent]
        if len(turns.out) < child.limit:
            turns.out.add(child.key)
            return True
        turns.waiting[child.key] = None
        return False

    def leave_turn(self, child: Node) -> str | None:
        turns = self._turns[child.parent]
        turns.out.discard(child.key)
        turns.waiting.pop(child.key, None)
        if not turns.waiting or len(turns.out) >= child.limit:
            return None
        following = next(iter(turns.waiting))
        del turns.waiting[following]
        turns.out.add(following)
        return following

    def record(self) -> FlowRecord:
        run, _, cancelled = self._facts
        return FlowRecord(
            head=self.head, run=run, unfinished=len(self._unfinished), cancelled=cancelled, started=self.started
        )

    def failed_keys(self) -> frozenset[str]:
        return frozenset(node.parent or node.key for node in self.with_states(_FAILED))

    def _add(self, node: Node, call: bytes) -> None:
        self.nodes[node.key] = node
        self._calls[node.key] = call
        self._unfinished[node.key] = None

    def _awaited_by(self, node: Node) -> _Awaited:
        return self._awaited[node.key if node.total is None else f"{node.key}."]


class FlowTable:
    """The workflows of one `MemoryData`. Used by several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._flows: dict[str, MemoryFlow] = {}

    def add(self, flow_id: str, view: MemoryFlow, *, now: int) -> bool:
        self._drop_expired(now)
        if flow_id in self._flows:
            return False
        self._flows[flow_id] = view
        view.started, view.expires = now, now + view.ttl
        return True

    def change(self, flow_id: str, *, now: int) -> MemoryFlow | None:
        """Return a flow that is about to change, which extends its expiry."""
        view = self.find(flow_id, now=now)
        if view is not None:
            view.expires = now + view.ttl
        return view

    def find(self, flow_id: str, *, now: int) -> MemoryFlow | None:
        view = self._flows.get(flow_id)
        return None if view is None or view.expires <= now else view

    def flows(self, *, now: int) -> list[tuple[FlowCursor, MemoryFlow]]:
        """Return all flows, newest first."""
        there = [(FlowCursor(view.started, key), view) for key, view in self._flows.items() if view.expires > now]
        return sorted(there, key=lambda one: one[0], reverse=True)

    def clear(self) -> None:
        with self.lock:
            self._flows.clear()

    def _drop_expired(self, now: int) -> None:
        for flow_id in [flow_id for flow_id, view in self._flows.items() if view.expires <= now]:
            del self._flows[flow_id]


class MemoryFlows(FlowChanges):
    """A `taskmq.contracts.stores.FlowStore`.

    Args:
        check_open: raises if the state was closed.
    """

    def __init__(self, table: FlowTable, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._check_open = check_open

    async def create(self, flow_id: str, head: bytes, nodes: Sequence[FlowNode], *, ttl: float) -> bool:
        now = self._now()
        view = MemoryFlow(head, nodes, ttl=round(ttl * 1000))
        with self._table.lock:
            if not self._table.add(flow_id, view, now=now):
                return False
            open_flow(view, nodes)
            return True

    async def look(self, flow_id: str) -> FlowRecord | None:
        now = self._now()
        with self._table.lock:
            view = self._table.find(flow_id, now=now)
            return None if view is None else view.record()

    async def entries(
        self,
        *,
        tenant: str | None = None,
        since: int | None = None,
        before: int | None = None,
        after: FlowCursor | None = None,
        limit: int = 100,
    ) -> FlowPage:
        now = self._now()
        with self._table.lock:
            found = [
                (position, view)
                for position, view in self._table.flows(now=now)
                if (tenant is None or split_tenant_key(position.flow_id)[0] == tenant)
                and (since is None or position.started >= since)
                and (before is None or position.started < before)
                and (after is None or position < after)
            ]
            page = found[:limit]
            entries = [_entry(position.flow_id, view) for position, view in page]
        return FlowPage(entries, page[-1][0] if len(found) > limit else None)

    async def states(self, flow_id: str) -> dict[str, NodeState]:
        now = self._now()
        with self._table.lock:
            view = self._table.find(flow_id, now=now)
            return {} if view is None else {node.key: node.state for node in view.nodes.values()}

    async def outcomes(self, flow_id: str, keys: Sequence[str]) -> list[EndedNode | None]:
        now = self._now()
        with self._table.lock:
            view = self._table.find(flow_id, now=now)
            return [None if view is None else _outcome(view, key) for key in keys]

    async def calls(self, flow_id: str, keys: Sequence[str]) -> list[bytes | None]:
        now = self._now()
        with self._table.lock:
            view = self._table.find(flow_id, now=now)
            return [None if view is None or view.find(key) is None else view.call(key) for key in keys]

    async def ended_keys(self, flow_id: str, *, offset: int, limit: int) -> list[str]:
        now = self._now()
        with self._table.lock:
            view = self._table.find(flow_id, now=now)
            return [] if view is None else view.ends[offset : offset + limit]

    async def _change(
        self,
        flow_id: str,
        change: Callable[[FlowView, int], T],
        unknown: T,
        *,
        is_durable: bool = True,  # noqa: ARG002 - nothing in memory is durable
    ) -> T:
        now = self._now()
        with self._table.lock:
            view = self._table.change(flow_id, now=now)
            return unknown if view is None else change(view, now)

    def _now(self) -> int:
        self._check_open()
        return self._clock.now_ms()


def _outcome(view: MemoryFlow, key: str) -> EndedNode | None:
    node = view.find(key)
    return None if node is None or node.state not in ENDED_STATES else EndedNode(node.state, view.value(key))


def _entry(flow_id: str, view: MemoryFlow) -> FlowEntry:
    record = view.record()
    has_ended = record.unfinished == 0 and record.cancelled is None
    failed = view.failed_keys() if has_ended else frozenset[str]()
    return FlowEntry(id=flow_id, record=record, nodes=len(view.nodes), failed=failed)
