"""Workflows, in the file of `local://`."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

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
from taskmq.model.keys import tenant_key, tenant_prefix
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
from taskmq_local.database.state_database import StateDatabase
from taskmq_local.database.work import Durability

__all__ = ["LocalFlows"]

T = TypeVar("T")

# The one that is made anew as well, however many stand before it.
_EXPIRED: Final = """
    SELECT number FROM (SELECT number FROM flows WHERE expires <= :now ORDER BY expires LIMIT 10)
    UNION SELECT number FROM flows WHERE id = :id AND expires <= :now
"""
_DELETE_EXPIRED: Final = tuple(
    f"DELETE FROM {table} WHERE {column} IN ({_EXPIRED})"  # noqa: S608 - our own words
    # `flows` comes last: the other statements read from it which flows have expired.
    for table, column in (
        *((f"flow_{what}", "flow") for what in ("edges", "ends", "offers", "lanes", "appends", "nodes")),
        ("flows", "number"),
    )
)
_FIND: Final = "SELECT key, kind, rule, state, total, lane, bound FROM flow_nodes WHERE flow = ? AND key = ?"
_COUNTS: Final = """
    SELECT n.state, count(*) FROM flow_edges e JOIN flow_nodes n ON n.flow = e.flow AND n.key = e.before
    WHERE e.flow = ? AND e.after = ? AND e.arrived = 1 AND n.parent = ? GROUP BY n.state
"""
_RECORD: Final = """
    number, head, run, cancelled, started,
    (SELECT count(*) FROM flow_nodes n WHERE n.flow = f.number AND n.state IN ('waiting', 'ready'))
"""
_LOOK: Final = f"SELECT {_RECORD} FROM flows f WHERE id = ? AND expires > ?"  # noqa: S608 - our own words
_ENTRIES: Final = (
    f"SELECT {_RECORD}, id, (SELECT count(*) FROM flow_nodes n WHERE n.flow = f.number) "  # noqa: S608 - our own words
    "FROM flows f WHERE {where} ORDER BY started DESC, id DESC LIMIT ?"
)
_FAILED: Final = "SELECT DISTINCT iif(parent = '', key, parent) FROM flow_nodes WHERE flow = ? AND state = 'failed'"
_GOOD: Final = (NodeState.SUCCEEDED.value,)
_BAD: Final = (NodeState.FAILED.value, NodeState.UPSTREAM_FAILED.value)


class _NodeView(NamedTuple):
    key: str
    kind: NodeKind
    rule: Rule
    state: NodeState
    total: int | None
    lane: str
    limit: int


class _FlowStateView:
    """One flow: a `taskmq.workflow.model.state_machine.Board`. Lives as long as a transaction."""

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        self._connection = connection
        self._flow = number

    def run(self) -> int:
        return self._number("SELECT run FROM flows WHERE number = ?")

    def set_run(self, run: int) -> None:
        self._do("UPDATE flows SET run = ? WHERE number = ?", run, self._flow)

    def next_token(self) -> int:
        return self._number("UPDATE flows SET token = token + 1 WHERE number = ? RETURNING token")

    def cancelled(self) -> str | None:
        found: str | None = self._rows("SELECT cancelled FROM flows WHERE number = ?", self._flow)[0][0]
        return found

    def set_cancelled(self, reason: str | None) -> None:
        self._do("UPDATE flows SET cancelled = ? WHERE number = ?", reason, self._flow)

    def find(self, key: str) -> _NodeView | None:
        rows = self._rows(_FIND, self._flow, key)
        if not rows:
            return None
        name, kind, rule, state, total, lane, bound = rows[0]
        return _NodeView(name, kind, rule, NodeState(state), total, lane, bound)

    def call(self, key: str) -> bytes:
        return self._blob("SELECT call FROM flow_nodes WHERE flow = ? AND key = ?", key)

    def value(self, key: str) -> bytes:
        return self._blob("SELECT value FROM flow_nodes WHERE flow = ? AND key = ?", key)

    def claim(self, key: str) -> NodeClaim | None:
        rows = self._rows("SELECT token, owner, until FROM flow_nodes WHERE flow = ? AND key = ?", self._flow, key)
        return NodeClaim(*rows[0]) if rows and rows[0][0] else None

    def set_claim(self, key: str, claim: NodeClaim) -> None:
        self._set(key, "token = ?, owner = ?, until = ?", *claim)

    def set_state(self, key: str, state: NodeState) -> None:
        self._set(key, "state = ?", state.value)

    def set_value(self, key: str, value: bytes) -> None:
        self._set(key, "value = ?", value)

    def set_total(self, key: str, total: int) -> None:
        self._set(key, "total = ?", total)

    def add_child(self, entry: NodeView, number: int, call: bytes) -> str | None:
        key = f"{entry.key}.{number}"
        lane = entry.key if entry.limit else ""
        node = FlowNode(key=key, call=call, limit=entry.limit)
        if not self.add(node, lane=lane, parent=entry.key):
            return None
        self._do(
            "INSERT INTO flow_edges (flow, before, place, after) VALUES (?, ?, 0, ?)", self._flow, key, entry.key
        )
        return key

    def appended(self, key: str, name: str) -> int | None:
        rows = self._rows(
            "SELECT number FROM flow_appends WHERE flow = ? AND node = ? AND name = ?", self._flow, key, name
        )
        return rows[0][0] if rows else None

    def note_appended(self, key: str, name: str, number: int) -> None:
        self._do(
            "INSERT OR REPLACE INTO flow_appends (flow, node, name, number) VALUES (?, ?, ?, ?)",
            self._flow,
            key,
            name,
            number,
        )

    def after(self, key: str, start: int, limit: int) -> list[str]:
        rows = self._rows(
            "SELECT after FROM flow_edges WHERE flow = ? AND before = ? AND place >= ? ORDER BY place LIMIT ?",
            self._flow,
            key,
            start,
            limit,
        )
        return [row[0] for row in rows]

    def arrive(self, key: str, before: str) -> None:
        self._arrived(key, before, 1)

    def leave(self, key: str, before: str) -> None:
        self._arrived(key, before, 0)

    def is_complete(self, entry: NodeView) -> bool:
        missing = "SELECT 1 FROM flow_edges WHERE flow = ? AND after = ? AND arrived = 0 LIMIT 1"
        return not self._rows(missing, self._flow, entry.key)

    def parents(self, entry: NodeView) -> ParentCounts:
        parent = "" if entry.total is None else entry.key
        counts: dict[str, int] = dict(self._rows(_COUNTS, self._flow, entry.key, parent))
        succeeded = sum(counts.get(state, 0) for state in _GOOD)
        failed = sum(counts.get(state, 0) for state in _BAD)
        return ParentCounts(succeeded, failed, sum(counts.values()) - succeeded - failed)

    def to_visit(self) -> tuple[str, int] | None:
        rows = self._rows(
            "SELECT key, visit FROM flow_nodes WHERE flow = ? AND visit IS NOT NULL LIMIT 1", self._flow
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def visit_from(self, key: str, start: int | None) -> None:
        self._set(key, "visit = ?", start)

    def offer(self, key: str) -> None:
        self._do("INSERT OR REPLACE INTO flow_offers (flow, key, until) VALUES (?, ?, 0)", self._flow, key)

    def withdraw(self, key: str) -> None:
        self._do("DELETE FROM flow_offers WHERE flow = ? AND key = ?", self._flow, key)

    def offered(self, *, now: int, limit: int) -> list[str]:
        rows = self._rows("SELECT key FROM flow_offers WHERE flow = ? AND until <= ? LIMIT ?", self._flow, now, limit)
        return [row[0] for row in rows]

    def give(self, key: str, taker: str, until: int) -> None:
        self._do(
            "UPDATE flow_offers SET taker = ?, until = ? WHERE flow = ? AND key = ?", taker, until, self._flow, key
        )

    def take_back(self, taker: str) -> None:
        self._do("UPDATE flow_offers SET until = 0 WHERE flow = ? AND taker = ?", self._flow, taker)

    def enter_lane(self, lane: str, key: str, limit: int) -> bool:
        inside = self._rows("SELECT key FROM flow_lanes WHERE flow = ? AND lane = ? AND place = 0", self._flow, lane)
        if len(inside) < limit:
            self._place(lane, key, 0)
            return True
        self._do(
            """
            INSERT OR REPLACE INTO flow_lanes (flow, lane, key, place) VALUES (
                ?1, ?2, ?3, (SELECT ifnull(max(place), 0) + 1 FROM flow_lanes WHERE flow = ?1 AND lane = ?2)
            )
            """,
            self._flow,
            lane,
            key,
        )
        return False

    def leave_lane(self, lane: str, key: str, limit: int) -> str | None:
        self._do("DELETE FROM flow_lanes WHERE flow = ? AND lane = ? AND key = ?", self._flow, lane, key)
        inside = self._rows("SELECT key FROM flow_lanes WHERE flow = ? AND lane = ? AND place = 0", self._flow, lane)
        if len(inside) >= limit:
            return None
        rows = self._rows(
            "SELECT key FROM flow_lanes WHERE flow = ? AND lane = ? AND place > 0 ORDER BY place LIMIT 1",
            self._flow,
            lane,
        )
        if not rows:
            return None
        following: str = rows[0][0]
        self._place(lane, following, 0)
        return following

    def note_end(self, key: str) -> bool:
        self._do("INSERT INTO flow_ends (flow, key) VALUES (?, ?)", self._flow, key)
        return not self._rows(
            "SELECT 1 FROM flow_nodes WHERE flow = ? AND state IN ('waiting', 'ready') LIMIT 1", self._flow
        )

    def note_revival(self, key: str) -> None:
        pass

    def unfinished(self) -> list[str]:
        rows = self._rows("SELECT key FROM flow_nodes WHERE flow = ? AND state IN ('waiting', 'ready')", self._flow)
        return [row[0] for row in rows]

    def unsuccessful(self) -> list[str]:
        rows = self._rows(
            "SELECT key FROM flow_nodes WHERE flow = ? AND state NOT IN ('waiting', 'ready', 'succeeded')", self._flow
        )
        return [row[0] for row in rows]

    def add(self, node: FlowNode, *, lane: str = "", parent: str = "") -> bool:
        """Add a node that waits; False where it is there already."""
        values = (self._flow, node.key, node.kind, node.rule, node.call, node.limit, lane, parent)
        added = self._connection.execute(
            """
            INSERT OR IGNORE INTO flow_nodes (flow, key, kind, rule, call, bound, lane, parent)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            values,
        )
        return added.rowcount == 1

    def connect(self, nodes: Sequence[FlowNode]) -> None:
        """Add the edges of nodes."""
        places: dict[str, int] = {}
        for node in nodes:
            for before in node.after:
                place = places[before] = places.get(before, -1) + 1
                self._do(
                    "INSERT INTO flow_edges (flow, before, place, after) VALUES (?, ?, ?, ?)",
                    self._flow,
                    before,
                    place,
                    node.key,
                )

    def _arrived(self, key: str, before: str, arrived: int) -> None:
        self._do(
            "UPDATE flow_edges SET arrived = ? WHERE flow = ? AND after = ? AND before = ?",
            arrived,
            self._flow,
            key,
            before,
        )

    def _place(self, lane: str, key: str, place: int) -> None:
        self._do(
            "INSERT OR REPLACE INTO flow_lanes (flow, lane, key, place) VALUES (?, ?, ?, ?)",
            self._flow,
            lane,
            key,
            place,
        )

    def _set(self, key: str, what: str, *values: object) -> None:
        self._do(f"UPDATE flow_nodes SET {what} WHERE flow = ? AND key = ?", *values, self._flow, key)  # noqa: S608 - our own words

    def _blob(self, statement: str, key: str) -> bytes:
        found: bytes = self._rows(statement, self._flow, key)[0][0]
        return found

    def _number(self, statement: str) -> int:
        found: int = self._rows(statement, self._flow)[0][0]
        return found

    def _do(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, values)

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()


class LocalFlows:
    """A `taskmq.stores.FlowStore`."""

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
            view = _FlowStateView(connection, made[0][0])
            for node in nodes:
                view.add(node)
            view.connect(nodes)
            open_flow(view, nodes)
            return True

        return await self._database.ask(create, care=Durability.DURABLE)

    async def start(
        self, flow_id: str, node: str, *, owner: str, seconds: float, takes_over: bool
    ) -> BegunNode | BusyNode | EndedNode | None:
        now = self._clock.now_ms()
        until = now + round(seconds * 1000)

        def start(view: _FlowStateView) -> BegunNode | BusyNode | EndedNode | None:
            return start_run(view, node, owner=owner, until=until, takes_over=takes_over, now=now)

        return await self._change(flow_id, start, None, care=Durability.LOOSE)

    async def renew(self, flow_id: str, node: str, *, token: int, seconds: float) -> bool:
        until = self._clock.now_ms() + round(seconds * 1000)
        return await self._change(
            flow_id, lambda view: renew_run(view, node, token=token, until=until), False, care=Durability.LOOSE
        )

    async def release(self, flow_id: str, node: str, *, token: int) -> None:
        await self._change(flow_id, lambda view: release_run(view, node, token=token), None, care=Durability.LOOSE)

    async def end(
        self, flow_id: str, node: str, *, token: int, state: NodeState, value: bytes, taker: str, lease: float
    ) -> Taken | None:
        now = self._clock.now_ms()
        until = now + round(lease * 1000)

        def end(view: _FlowStateView) -> Taken | None:
            return end_run(view, node, token=token, state=state, value=value, taker=taker, until=until, now=now)

        return await self._change(flow_id, end, None)

    async def take(self, flow_id: str, *, taker: str, lease: float, again: bool = False) -> Taken:
        now = self._clock.now_ms()
        until = now + round(lease * 1000)
        return await self._change(
            flow_id, lambda view: take_some(view, taker=taker, until=until, now=now, again=again), _NOTHING
        )

    async def done(self, flow_id: str, keys: Sequence[str], *, taker: str, lease: float) -> Taken:
        now = self._clock.now_ms()
        until = now + round(lease * 1000)
        return await self._change(
            flow_id, lambda view: done_taken(view, keys, taker=taker, until=until, now=now), _NOTHING
        )

    async def expand(self, flow_id: str, node: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
        await self._change(flow_id, lambda view: expand_map(view, node, calls, first=first, total=total), None)

    async def append(
        self, flow_id: str, node: str, calls: Sequence[bytes], *, name: str = "", closes: bool = False
    ) -> int | None:
        return await self._change(
            flow_id, lambda view: append_to_batch(view, node, calls, name=name, closes=closes), None
        )

    async def cancel(self, flow_id: str, *, reason: str) -> list[str] | None:
        now = self._clock.now_ms()
        return await self._change(flow_id, lambda view: cancel_flow(view, reason=reason, now=now), None)

    async def redrive(self, flow_id: str) -> int:
        return await self._change(flow_id, redrive_flow, 0)

    async def look(self, flow_id: str) -> FlowRecord | None:
        now = self._clock.now_ms()

        def look(connection: sqlite3.Connection) -> FlowRecord | None:
            rows = connection.execute(_LOOK, (flow_id, now)).fetchall()
            return _record(rows[0]) if rows else None

        return await self._database.ask(look, care=Durability.LOOSE)

    async def entries(
        self,
        *,
        tenant: str | None = None,
        since: int | None = None,
        before: int | None = None,
        after: FlowPlace | None = None,
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
            last = FlowPlace(entries[-1].record.started, entries[-1].id) if len(rows) > limit else None
            return FlowPage(entries, last)

        return await self._database.ask(select, care=Durability.LOOSE)

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

    async def ended(self, flow_id: str, *, place: int, limit: int) -> list[str]:
        rows = await self._select(
            flow_id, "SELECT key FROM flow_ends WHERE flow = ? ORDER BY place LIMIT ? OFFSET ?", limit, place
        )
        return [str(row[0]) for row in rows]

    async def _change(
        self,
        flow_id: str,
        change: Callable[[_FlowStateView], T],
        unknown: T,
        *,
        care: Durability = Durability.DURABLE,
    ) -> T:
        now = self._clock.now_ms()

        def run(connection: sqlite3.Connection) -> T:
            rows = connection.execute(
                "UPDATE flows SET expires = ttl + ?2 WHERE id = ?1 AND expires > ?2 RETURNING number", (flow_id, now)
            ).fetchall()
            return change(_FlowStateView(connection, rows[0][0])) if rows else unknown

        return await self._database.ask(run, care=care)

    async def _select(self, flow_id: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
        now = self._clock.now_ms()

        def select(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            rows = connection.execute(
                "SELECT number FROM flows WHERE id = ? AND expires > ?", (flow_id, now)
            ).fetchall()
            return connection.execute(statement, (rows[0][0], *values)).fetchall() if rows else []

        return await self._database.ask(select, care=Durability.LOOSE)

    async def _each(self, flow_id: str, columns: str, keys: Sequence[str]) -> list[tuple[Any, ...] | None]:
        now = self._clock.now_ms()
        statement = f"SELECT {columns} FROM flow_nodes WHERE flow = ? AND key = ?"  # noqa: S608 - our own words

        def select(connection: sqlite3.Connection) -> list[tuple[Any, ...] | None]:
            rows = connection.execute(
                "SELECT number FROM flows WHERE id = ? AND expires > ?", (flow_id, now)
            ).fetchall()
            return [connection.execute(statement, (rows[0][0], key)).fetchone() if rows else None for key in keys]

        return await self._database.ask(select, care=Durability.LOOSE)


_NOTHING: Final = Taken((), is_more=False)


def _record(row: tuple[Any, ...]) -> FlowRecord:
    _, head, run, cancelled, started, left = row[:6]
    return FlowRecord(head=head, run=run, unfinished=left, cancelled=cancelled, started=started)


def _entry(connection: sqlite3.Connection, row: tuple[Any, ...]) -> FlowEntry:
    record = _record(row)
    failed = frozenset[str]()
    if record.unfinished == 0 and record.cancelled is None:
        failed = frozenset(key for (key,) in connection.execute(_FAILED, (row[0],)))
    return FlowEntry(id=row[6], record=record, nodes=row[7], failed=failed)
