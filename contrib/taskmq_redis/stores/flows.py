"""Workflows in Redis."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar, cast

from taskmq.contracts.stores.flows import (
    ENDED_STATES,
    BegunNode,
    BusyNode,
    EndedNode,
    FlowCursor,
    FlowEntry,
    FlowNode,
    FlowPage,
    FlowRecord,
    NodeKind,
    NodeState,
    Taken,
    TakenNode,
)
from taskmq.errors import StateUnavailable
from taskmq_redis.keys import Keys
from taskmq_redis.link.call import Reply, Word
from taskmq_redis.link.replies import flag, integer, texts, texts_or_none
from taskmq_redis.link.server import Server
from taskmq_redis.scripts.script import Script
from taskmq_redis.stores.flow_index import RedisFlowIndex
from taskmq_redis.stores.results import milliseconds

__all__ = ["RedisFlows"]

_CANCEL_NODES: Final = Script("flows/cancel_nodes")
_MARK_CANCELLED: Final = Script("flows/mark_cancelled")
_REDRIVE_FLOW: Final = Script("flows/redrive_flow")
_REDRIVEN: Final = Script("flows/redriven")
_REVIVE_NODES: Final = Script("flows/revive_nodes")
_APPEND_NODES: Final = Script("flows/append_nodes")
_CREATE_FLOW: Final = Script("flows/create_flow")
_DONE_NODES: Final = Script("flows/done_nodes")
_END_NODE: Final = Script("flows/end_node")
_EXPAND_NODE: Final = Script("flows/expand_node")
_OPEN_FLOW: Final = Script("flows/open_flow")
_PUT_NODES: Final = Script("flows/put_nodes")
_RELEASE_NODE: Final = Script("flows/release_node")
_RENEW_NODE: Final = Script("flows/renew_node")
_REOPEN_NODES: Final = Script("flows/reopen_nodes")
_START_NODE: Final = Script("flows/start_node")
_TAKE_NODES: Final = Script("flows/take_nodes")

T = TypeVar("T")

# Items per script: longer ones would block other clients for too long.
_CHUNK: Final = 100
_FOLLOWERS: Final = 50
_PASSES: Final = 20
# How long (ms) other callers leave a flow to the one that redrives it. They check at the interval below whether it
# has finished. If it was lost, the next caller continues.
_REDRIVES_FOR: Final = 5_000
_LOOKS: Final = 0.05
_ENDED: Final = frozenset(state.encode() for state in ENDED_STATES)


class RedisFlows:
    """A `taskmq.contracts.stores.FlowStore`."""

    def __init__(self, server: Server, keys: Keys) -> None:
        self._server = server
        self._keys = keys
        self._index = RedisFlowIndex(server, keys)

    async def create(self, flow_id: str, head: bytes, nodes: Sequence[FlowNode], *, ttl: float) -> bool:
        key = [self._keys.flow(flow_id)]
        kept = milliseconds(ttl)
        started = integer(await self._server.run(_CREATE_FLOW, key, (head, kept)))
        if not started:
            return False
        # Listed before it becomes visible, so that every visible flow is listed.
        await self._index.add(flow_id, started=started, kept=kept)
        after: defaultdict[str, list[str]] = defaultdict(list)
        for node in nodes:
            for before in node.after:
                after[before].append(node.key)
        for chunk in _chunks(nodes):
            fields: list[Word] = []
            for node in chunk:
                before = node.after[0] if len(node.after) == 1 else "-"
                facts = f"{node.kind} {node.rule} {len(node.after)} {node.limit} {before}"
                fields += [f"r:{node.key}", facts, f"c:{node.key}", node.call]
                for number, those in enumerate(_chunks(after[node.key], _FOLLOWERS)):
                    fields += [f"o:{node.key}/{number}", " ".join(those)]
            arguments = (len(fields) // 2, *fields, *(node.key for node in chunk))
            if not flag(await self._server.run(_PUT_NODES, key, arguments)):
                return False
        for roots in _chunks([node.key for node in nodes if not node.after]):
            await self._server.run(_REOPEN_NODES, key, roots)
        await self._server.run(_OPEN_FLOW, key, ())
        return True

    async def start(
        self, flow_id: str, node: str, *, owner: str, seconds: float, takes_over: bool
    ) -> BegunNode | BusyNode | EndedNode | None:
        arguments = (node, owner, milliseconds(seconds), int(takes_over))
        match texts(await self._run(_START_NODE, flow_id, arguments)):
            case []:
                return None
            case [b"begun", token, call]:
                return BegunNode(int(token), call)
            case [b"busy", left]:
                return BusyNode(int(left) / 1000)
            case [b"ended", state, value]:
                return EndedNode(NodeState(state.decode()), value)
            case _:
                raise _unexpected_reply()

    async def renew(self, flow_id: str, node: str, *, token: int, seconds: float) -> bool:
        return flag(await self._run(_RENEW_NODE, flow_id, (node, str(token), milliseconds(seconds))))

    async def release(self, flow_id: str, node: str, *, token: int) -> None:
        await self._run(_RELEASE_NODE, flow_id, (node, str(token)))

    async def end(
        self, flow_id: str, node: str, *, token: int, state: NodeState, value: bytes, taker: str, lease: float
    ) -> Taken | None:
        arguments = (taker, milliseconds(lease), node, str(token), state, value)
        reply = texts(await self._run(_END_NODE, flow_id, arguments))
        return _to_taken(reply) if reply else None

    async def take(self, flow_id: str, *, taker: str, lease: float, again: bool = False) -> Taken:
        return _to_taken(texts(await self._run(_TAKE_NODES, flow_id, (taker, milliseconds(lease), int(again)))))

    async def mark_done(self, flow_id: str, keys: Sequence[str], *, taker: str, lease: float) -> Taken:
        return _to_taken(texts(await self._run(_DONE_NODES, flow_id, (taker, milliseconds(lease), *keys))))

    async def expand(self, flow_id: str, node: str, calls: Sequence[bytes], *, first: int, total: int) -> None:
        for at in range(0, max(len(calls), 1), _CHUNK):
            await self._run(_EXPAND_NODE, flow_id, (node, first + at, total, *calls[at : at + _CHUNK]))

    async def append(
        self, flow_id: str, node: str, calls: Sequence[bytes], *, name: str = "", closes: bool = False
    ) -> int | None:
        first = integer(await self._run(_APPEND_NODES, flow_id, (node, name, int(closes), *calls)))
        return None if first < 0 else first

    async def cancel(self, flow_id: str, *, reason: str) -> list[str] | None:
        if not flag(await self._run(_MARK_CANCELLED, flow_id, (reason,))):
            return None
        name = f"{self._keys.flow(flow_id)}:open"
        running: dict[str, None] = {}
        # A map may have received children meanwhile; once cancelled, it gets no more.
        for _ in range(_PASSES):
            found = [each.decode() for each in texts(await self._server.ask("SMEMBERS", name, key=name))]
            left = [each for each in found if each not in running]
            if not left:
                break
            for chunk in _chunks(left):
                those = texts(await self._run(_CANCEL_NODES, flow_id, (reason, *chunk)))
                running.update((each.decode(), None) for each in those)
        return [*running]

    async def redrive(self, flow_id: str) -> int:
        owner = os.urandom(8).hex()
        while (left := integer(await self._run(_REDRIVE_FLOW, flow_id, (owner, _REDRIVES_FOR)))) > 0:
            await asyncio.sleep(min(left / 1000, _LOOKS))
        if left == 0:
            return 0
        name = self._keys.flow(flow_id)
        # First all nodes wait again, then those that need not are reopened. A repeated call continues where this one
        # stopped.
        for chunk in _chunks(await self._members(f"{name}:bad")):
            await self._run(_REVIVE_NODES, flow_id, chunk)
        redone = await self._members(f"{name}:redo")
        for chunk in _chunks(redone):
            await self._run(_REOPEN_NODES, flow_id, chunk)
        await self._run(_REDRIVEN, flow_id, (owner,))
        return len(redone)

    async def look(self, flow_id: str) -> FlowRecord | None:
        name = self._keys.flow(flow_id)
        fields = ("head", "run", "cancelled", "is_open", "started")
        found = texts_or_none(await self._server.ask("HMGET", name, *fields, key=name))
        head, run, cancelled, is_open, started = found
        if head is None or run is None or is_open is None:
            return None
        left = integer(await self._server.ask("SCARD", f"{name}:open", key=name))
        reason = None if cancelled is None else cancelled.decode(errors="replace")
        return FlowRecord(head=head, run=int(run), unfinished=left, cancelled=reason, started=int(started or 0))

    async def entries(
        self,
        *,
        tenant: str | None = None,
        since: int | None = None,
        before: int | None = None,
        after: FlowCursor | None = None,
        limit: int = 100,
    ) -> FlowPage:
        cursors, is_more = await self._index.page(tenant=tenant, since=since, before=before, after=after, limit=limit)
        found = await asyncio.gather(*(self._entry(cursor.flow_id) for cursor in cursors))
        await self._index.settle([cursor.flow_id for cursor, one in zip(cursors, found, strict=True) if one is None])
        return FlowPage([one for one in found if one is not None], cursors[-1] if is_more else None)

    async def _entry(self, flow_id: str) -> FlowEntry | None:
        record = await self.look(flow_id)
        if record is None:
            return None
        name = self._keys.flow(flow_id)
        nodes = integer(await self._server.ask("HLEN", f"{name}:states", key=name))
        failed: set[str] = set()
        if record.unfinished == 0 and record.cancelled is None:
            bad = await self._members(f"{name}:bad")
            states = await self._fields(f"{name}:states", bad)
            failed = {key.partition(".")[0] for key, state in zip(bad, states, strict=True) if state == b"failed"}
        return FlowEntry(id=flow_id, record=record, nodes=nodes, failed=frozenset(failed))

    async def states(self, flow_id: str) -> dict[str, NodeState]:
        name = f"{self._keys.flow(flow_id)}:states"
        found = texts(await self._server.ask("HGETALL", name, key=name))
        return {key.decode(): NodeState(state.decode()) for key, state in zip(found[::2], found[1::2], strict=True)}

    async def outcomes(self, flow_id: str, keys: Sequence[str]) -> list[EndedNode | None]:
        # The state first: if a node has ended, its value exists.
        states = await self._fields(f"{self._keys.flow(flow_id)}:states", keys)
        values = await self._fields(f"{self._keys.flow(flow_id)}:values", keys)
        return [
            None if state is None or state not in _ENDED else EndedNode(NodeState(state.decode()), value or b"")
            for state, value in zip(states, values, strict=True)
        ]

    async def calls(self, flow_id: str, keys: Sequence[str]) -> list[bytes | None]:
        return await self._fields(f"{self._keys.flow(flow_id)}:graph", [f"c:{key}" for key in keys])

    async def ended_keys(self, flow_id: str, *, offset: int, limit: int) -> list[str]:
        name = f"{self._keys.flow(flow_id)}:ends"
        found = texts(await self._server.ask("LRANGE", name, offset, offset + limit - 1, key=name))
        return [each.decode() for each in found]

    async def _members(self, name: str) -> list[str]:
        return [each.decode() for each in texts(await self._server.ask("SMEMBERS", name, key=name))]

    async def _fields(self, name: str, keys: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for chunk in _chunks(keys):
            found += texts_or_none(await self._server.ask("HMGET", name, *chunk, key=name))
        return found

    async def _run(self, script: Script, flow_id: str, arguments: Sequence[Word]) -> Reply:
        return await self._server.run(script, [self._keys.flow(flow_id)], arguments)


def _chunks(items: Sequence[T], size: int = _CHUNK) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _to_taken(reply: list[bytes]) -> Taken:
    if not reply:
        return Taken((), is_more=False)
    is_more, run, *rest = reply
    nodes = tuple(
        TakenNode(key.decode(), cast("NodeKind", kind.decode()), call, int(run))
        for key, kind, call in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    )
    return Taken(nodes, is_more == b"1")


def _unexpected_reply() -> StateUnavailable:
    return StateUnavailable("the state's answer is not that of a taskmq script", is_certain=False)
