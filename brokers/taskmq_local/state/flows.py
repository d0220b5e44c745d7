"""Workflows, in the file of `local://`."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

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
from taskmq.model.keys import tenant_key, tenant_prefix
from taskmq.workflow.model.flow_view import FlowFacts, FlowView, Node, NodeClaim
from taskmq.workflow.model.rules import ParentCounts
from taskmq.workflow.model.transitions import open_flow
from taskmq_embedded.work import Care
from taskmq_local.database.state_database import StateDatabase
from taskmq_local.rules.flows import FlowChanges

__all__ = ["LocalFlows"]

T = TypeVar("T")

# Always includes the flow to be created, however many expired rows come first.
_EXPIRED: Final = """
    SELECT number FROM (SELECT number FROM flows WHERE expires <= :now ORDER BY expires LIMIT 10)
    UNION SELECT number FROM flows WHERE id = :id AND expires <= :now
"""
_DELETE_EXPIRED: Final = tuple(
    f"DELETE FROM {table} WHERE {column} IN ({_EXPIRED})"  # noqa: S608 - constant text
    # `flows` comes last: the other statements read from it which flows have expired.
    for table, column in (
        *((f"flow_{what}", "flow") for what in ("edges", "ends", "offers", "lanes", "appends", "nodes")),
        ("flows", "number"),
    )
)
_CHANGE: Final = """
    UPDATE flows SET expires = ttl + ?2 WHERE id = ?1 AND expires > ?2 RETURNING number, run, token, cancelled
"""
_NODE: Final = "n.key, n.kind, n.rule, n.bound, n.parent, n.state, n.total, n.visit, n.token, n.owner, n.until"
# A node waits for its children once their number is known, and before that for its predecessors; "/" sorts right
# after ".".
_MISSING: Final = """
    SELECT 1 FROM flow_edges m WHERE m.flow = n.flow AND m.after = n.key AND m.arrived = 0
    AND (m.before > n.key || '.' AND m.before < n.key || '/') = (n.total IS NOT NULL)
"""
_FOLLOWERS: Final = f"""
    SELECT {_NODE}, EXISTS ({_MISSING}) FROM flow_edges e JOIN flow_nodes n ON n.flow = e.flow AND n.key = e.after
    WHERE e.flow = ? AND e.before = ? AND e.place >= ? AND e.place < ? ORDER BY e.place
"""  # noqa: S608 - constant text
_PARENTS: Final = """
    SELECT total(n.state = 'succeeded'), total(n.state IN ('failed', 'upstream_failed')),
        total(n.state IN ('skipped', 'cancelled'))
    FROM flow_edges e JOIN flow_nodes n ON n.flow = e.flow AND n.key = e.before
    WHERE e.flow = ? AND e.after = ? AND e.arrived = 1 AND n.parent = ?
"""
_LEASE: Final = """
    UPDATE flow_offers SET taker = ?, until = ? WHERE flow = ? AND key IN (
        SELECT key FROM flow_offers WHERE flow = ? AND until <= ? LIMIT ?
    ) RETURNING key
"""
_RECORD: Final = """
    number, head, run, cancelled, started,
    (SELECT count(*) FROM flow_nodes n WHERE n.flow = f.number AND n.state IN ('waiting', 'ready'))
"""
_LOOK: Final = f"SELECT {_RECORD} FROM flows f WHERE id = ? AND expires > ?"  # noqa: S608 - constant text
_ENTRIES: Final = (
    f"SELECT {_RECORD}, id, (SELECT count(*) FROM flow_nodes n WHERE n.flow = f.number) "  # noqa: S608 - constant text
    "FROM flows f WHERE {where} ORDER BY started DESC, id DESC LIMIT ?"
)
_FAILED: Final = "SELECT DISTINCT iif(parent = '', key, parent) FROM flow_nodes WHERE flow = ? AND state = 'failed'"


class _FlowRows:
    """A flow as a `taskmq.workflow.model.flow_view.FlowView`, valid within one transaction."""

    def __init__(self, connection: sqlite3.Connection, number: int, facts: FlowFacts) -> None:
        self._connection = connection
        self._flow = number
        self._facts = facts

    def facts(self) -> FlowFacts:
        return self._facts

    def put_facts(self, facts: FlowFacts) -> None:
        self._facts = facts
        self._do("UPDATE flows SET run = ?, token = ?, cancelled = ? WHERE number = ?", *facts, self._flow)

    def find(self, key: str) -> Node | None:
        rows = self._rows(f"SELECT {_NODE} FROM flow_nodes n WHERE flow = ? AND key = ?", self._flow, key)  # noqa: S608 - constant text
        return _node(rows[0]) if rows else None

    def call(self, key: str) -> bytes:
        return self._blob("SELECT call FROM flow_nodes WHERE flow = ? AND key = ?", key)

    def value(self, key: str) -> bytes:
        return self._blob("SELECT value FROM flow_nodes WHERE flow = ? AND key = ?", key)

    def with_states(self, states: frozenset[NodeState]) -> list[Node]:
        marks = ", ".join("?" * len(states))
        statement = f"SELECT {_NODE} FROM flow_nodes n WHERE flow = ? AND state IN ({marks})"  # noqa: S608 - constant text
        return [_node(row) for row in self._rows(statement, self._flow, *states)]

    def put(self, node: Node, value: bytes | None = None) -> None:
        self._do(
            """
            UPDATE flow_nodes
            SET state = ?, total = ?, visit = ?, token = ?, owner = ?, until = ?, value = ifnull(?, value)
            WHERE flow = ? AND key = ?
            """,
            node.state.value,
            node.total,
            node.visit,
            *node.claim,
            value,
            self._flow,
            node.key,
        )

    def end(self, node: Node, value: bytes | None = None) -> bool:
        self.put(node, value)
        self.withdraw(node.key)
        self._do("INSERT INTO flow_ends (flow, key) VALUES (?, ?)", self._flow, node.key)
        return not self._rows(
            "SELECT 1 FROM flow_nodes WHERE flow = ? AND state IN ('waiting', 'ready') LIMIT 1", self._flow
        )

    def add_child(self, child: Node, call: bytes) -> bool:
        if not self._add(child, call):
            return False
        self._connect(child.key, 0, child.parent)
        return True

    def to_visit(self) -> Node | None:
        statement = f"SELECT {_NODE} FROM flow_nodes n WHERE flow = ? AND visit IS NOT NULL LIMIT 1"  # noqa: S608 - constant text
        rows = self._rows(statement, self._flow)
        return _node(rows[0]) if rows else None

    def arrive(self, node: Node, limit: int) -> list[tuple[Node, bool]]:
        start = node.visit or 0
        edges = (self._flow, node.key, start, start + limit)
        self._do(
            "UPDATE flow_edges SET arrived = 1 WHERE flow = ? AND before = ? AND place >= ? AND place < ?", *edges
        )
        return [(_node(row), not row[-1]) for row in self._rows(_FOLLOWERS, *edges)]

    def revive(self, node: Node) -> None:
        self.put(node)
        self._do("UPDATE flow_edges SET arrived = 0 WHERE flow = ? AND before = ?", self._flow, node.key)

    def is_complete(self, node: Node) -> bool:
        statement = f"SELECT EXISTS ({_MISSING}) FROM flow_nodes n WHERE flow = ? AND key = ?"  # noqa: S608 - constant text
        return not self._rows(statement, self._flow, node.key)[0][0]

    def parents(self, node: Node) -> ParentCounts:
        parent = "" if node.total is None else node.key
        return ParentCounts(*self._rows(_PARENTS, self._flow, node.key, parent)[0])

    def find_appended(self, key: str, name: str) -> int | None:
        rows = self._rows(
            "SELECT number FROM flow_appends WHERE flow = ? AND node = ? AND name = ?", self._flow, key, name
        )
        return rows[0][0] if rows else None

    def note_appended(self, key: str, name: str, number: int) -> None:
        statement = "INSERT OR REPLACE INTO flow_appends (flow, node, name, number) VALUES (?, ?, ?, ?)"
        self._do(statement, self._flow, key, name, number)

    def offer(self, key: str) -> None:
        self._do("INSERT OR REPLACE INTO flow_offers (flow, key, until) VALUES (?, ?, 0)", self._flow, key)

    def withdraw(self, key: str) -> None:
        self._do("DELETE FROM flow_offers WHERE flow = ? AND key = ?", self._flow, key)

    def lease(self, taker: str, *, until: int, now: int, limit: int, again: bool) -> list[str]:
        if again:
            self._do("UPDATE flow_offers SET until = 0 WHERE flow = ? AND taker = ?", self._flow, taker)
        return [row[0] for row in self._rows(_LEASE, taker, until, self._flow, self._flow, now, limit)]

    def take_turn(self, child: Node) -> bool:
        if not self._has_turn(child):
            statement = "SELECT ifnull(max(place), 0) + 1 FROM flow_lanes WHERE flow = ? AND lane = ?"
            self._add_to_lane(child, child.key, self._rows(statement, self._flow, child.parent)[0][0])
            return False
        self._add_to_lane(child, child.key, 0)
        return True

    def leave_turn(self, child: Node) -> str | None:
        turns = (self._flow, child.parent)
        self._do("DELETE FROM flow_lanes WHERE flow = ? AND lane = ? AND key = ?", *turns, child.key)
        if not self._has_turn(child):
            return None
        statement = "SELECT key FROM flow_lanes WHERE flow = ? AND lane = ? AND place > 0 ORDER BY place LIMIT 1"
        rows = self._rows(statement, *turns)
        if not rows:
            return None
        following: str = rows[0][0]
        self._add_to_lane(child, following, 0)
        return following

    def make(self, nodes: Sequence[FlowNode]) -> None:
        """Add all nodes of a new flow."""
        indexes: Counter[str] = Counter()
        for node in nodes:
            self._add(Node(node.key, node.kind, node.rule, node.limit), node.call)
            for before in node.after:
                self._connect(before, indexes[before], node.key)
                indexes[before] += 1

    def _add(self, node: Node, call: bytes) -> bool:
        lane = node.parent if node.takes_turns else ""
        values = (self._flow, node.key, node.kind, node.rule, call, node.limit, lane, node.parent)
        added = self._connection.execute(
            """
            INSERT OR IGNORE INTO flow_nodes (flow, key, kind, rule, call, bound, lane, parent)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            values,
        )
        return added.rowcount == 1

    def _connect(self, before: str, index: int, after: str) -> None:
        statement = "INSERT INTO flow_edges (flow, before, place, after) VALUES (?, ?, ?, ?)"
        self._do(statement, self._flow, before, index, after)

    def _has_turn(self, child: Node) -> bool:
        statement = "SELECT count(*) FROM flow_lanes WHERE flow = ? AND lane = ? AND place = 0"
        out: int = self._rows(statement, self._flow, child.parent)[0][0]
        return out < child.limit

    def _add_to_lane(self, child: Node, key: str, index: int) -> None:
        statement = "INSERT OR REPLACE INTO flow_lanes (flow, lane, key, place) VALUES (?, ?, ?, ?)"
        self._do(statement, self._flow, child.parent, key, index)

    def _blob(self, statement: str, key: str) -> bytes:
        found: bytes = self._rows(statement, self._flow, key)[0][0]
        return found

    def _do(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, values)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


class LocalFlows(FlowChanges):
    """A `taskmq.contracts.stores.FlowStore`."""

    def __init__(self, database: StateDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, flow_id: str, head: bytes, nodes: Sequence[FlowNode], *, ttl: float) -> bool:
        now, kept = self._clock.now_ms(), round(ttl * 1000)

        def create(connection: sqlite3.Connection) -> bool:
            for statement in _DELETE_EXPIRED:
                connection.execute(statement, {"now": now, "id": flow_id})
            made = connection.execute(
                """
                INSERT OR IGNORE INTO flows (id, head, ttl, expires, started, tenant) VALUES (?, ?, ?, ?, ?, ?)
                RETURNING number
                """,
                (flow_id, head, kept, now + kept, now, tenant_prefix(flow_id)),
            ).fetchall()
            if not made:
                return False
            view = _FlowRows(connection, made[0][0], FlowFacts())
            view.make(nodes)
            open_flow(view, nodes)
            return True

        return await self._database.ask(create, care=Care.DURABLE)

    async def look(self, flow_id: str) -> FlowRecord | None:
        now = self._clock.now_ms()

        def look(connection: sqlite3.Connection) -> FlowRecord | None:
            rows = connection.execute(_LOOK, (flow_id, now)).fetchall()
            return _record(rows[0]) if rows else None

        return await self._database.ask(look, care=Care.LOOSE)

    async def entries(
        self,
        *,
        tenant: str | None = None,
        since: int | None = None,
        before: int | None = None,
        after: FlowCursor | None = None,
        limit: int = 100,
    ) -> FlowPage:
        conditions = ["expires > ?"]
        values: list[object] = [self._clock.now_ms()]
        for condition, value in (
            ("tenant = ?", None if tenant is None else tenant_key(tenant or None, "")),
            ("started >= ?", since),
            ("started < ?", before),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        if after is not None:
            conditions.append("(started, id) < (?, ?)")
            values += after
        statement = _ENTRIES.format(where=" AND ".join(conditions))

        def select(connection: sqlite3.Connection) -> FlowPage:
            rows = connection.execute(statement, (*values, limit + 1)).fetchall()
            entries = [_entry(connection, row) for row in rows[:limit]]
            last = FlowCursor(entries[-1].record.started, entries[-1].id) if len(rows) > limit else None
            return FlowPage(entries, last)

        return await self._database.ask(select, care=Care.LOOSE)

    async def states(self, flow_id: str) -> dict[str, NodeState]:
        rows = await self._select(flow_id, "SELECT key, state FROM flow_nodes WHERE flow = ?")
        return {str(key): NodeState(str(state)) for key, state in rows}

    async def outcomes(self, flow_id: str, keys: Sequence[str]) -> list[EndedNode | None]:
        rows = await self._each(flow_id, "state, value", keys)
        found = [None if row is None else EndedNode(NodeState(str(row[0])), row[1]) for row in rows]
        return [None if one is None or one.state not in ENDED_STATES else one for one in found]

    async def calls(self, flow_id: str, keys: Sequence[str]) -> list[bytes | None]:
        rows = await self._each(flow_id, "call", keys)
        return [None if row is None else row[0] for row in rows]

    async def ended_keys(self, flow_id: str, *, offset: int, limit: int) -> list[str]:
        rows = await self._select(
            flow_id, "SELECT key FROM flow_ends WHERE flow = ? ORDER BY place LIMIT ? OFFSET ?", limit, offset
        )
        return [str(row[0]) for row in rows]

    async def _change(
        self, flow_id: str, change: Callable[[FlowView, int], T], unknown: T, *, is_durable: bool = True
    ) -> T:
        now = self._clock.now_ms()

        def run(connection: sqlite3.Connection) -> T:
            rows = connection.execute(_CHANGE, (flow_id, now)).fetchall()
            return change(_FlowRows(connection, rows[0][0], FlowFacts(*rows[0][1:])), now) if rows else unknown

        return await self._database.ask(run, care=Care.DURABLE if is_durable else Care.LOOSE)

    async def _select(self, flow_id: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
        now = self._clock.now_ms()

        def select(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            rows = connection.execute(
                "SELECT number FROM flows WHERE id = ? AND expires > ?", (flow_id, now)
            ).fetchall()
            return connection.execute(statement, (rows[0][0], *values)).fetchall() if rows else []

        return await self._database.ask(select, care=Care.LOOSE)

    async def _each(self, flow_id: str, columns: str, keys: Sequence[str]) -> list[tuple[Any, ...] | None]:
        now = self._clock.now_ms()
        statement = f"SELECT {columns} FROM flow_nodes WHERE flow = ? AND key = ?"  # noqa: S608 - constant text

        def select(connection: sqlite3.Connection) -> list[tuple[Any, ...] | None]:
            rows = connection.execute(
                "SELECT number FROM flows WHERE id = ? AND expires > ?", (flow_id, now)
            ).fetchall()
            return [connection.execute(statement, (rows[0][0], key)).fetchone() if rows else None for key in keys]

        return await self._database.ask(select, care=Care.LOOSE)


def _node(row: tuple[Any, ...]) -> Node:
    key, kind, rule, limit, parent, state, total, visit, token, owner, until = row[:11]
    claim = NodeClaim(token, owner, until)
    return Node(key, kind, rule, limit, parent, NodeState(state), total, visit, claim)


def _record(row: tuple[Any, ...]) -> FlowRecord:
    _, head, run, cancelled, started, left = row[:6]
    return FlowRecord(head=head, run=run, unfinished=left, cancelled=cancelled, started=started)


def _entry(connection: sqlite3.Connection, row: tuple[Any, ...]) -> FlowEntry:
    record = _record(row)
    failed = frozenset[str]()
    if record.unfinished == 0 and record.cancelled is None:
        failed = frozenset(key for (key,) in connection.execute(_FAILED, (row[0],)))
    return FlowEntry(id=row[6], record=record, nodes=row[7], failed=failed)
