"""Tests of workflows and of the ends of their nodes."""

import asyncio

from taskmq.contracts.stores.flows import (
    FINISH,
    BegunNode,
    BusyNode,
    EndedNode,
    FlowNode,
    FlowRecord,
    FlowStore,
    NodeState,
    Taken,
)
from taskmq.testing.runner import CancelPoint, cancel_at, case
from taskmq.testing.state_suite.case import LONG, StateCase, new
from taskmq.testing.state_suite.flows.driver import CHAIN, begin_node, end_node, take_all, taken_keys

__all__ = ["Flows"]


async def _values(flows: FlowStore, flow_id: str, keys: list[str]) -> list[bytes | None]:
    return [None if one is None else one.value for one in await flows.outcomes(flow_id, keys)]


class Flows(StateCase):
    """Every guarantee of `FlowStore`."""

    wide: int = 1200

    @case
    async def test_a_flow_is_created_once_and_visible_to_every_state(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("größe ☂ flow")

        assert await flows.create(flow_id, b"head", CHAIN, ttl=LONG)
        assert not await other.create(flow_id, b"another", (), ttl=LONG)

        record = await other.look(flow_id)
        assert record is not None
        assert record == FlowRecord(head=b"head", run=0, unfinished=2, started=record.started)
        assert await other.look(new("flow")) is None
        assert await other.states(flow_id) == {"0": NodeState.READY, "1": NodeState.WAITING}
        assert await other.calls(flow_id, ["1", "7"]) == [b"second", None]

    @case
    async def test_nodes_are_taken_only_when_they_are_ready(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", CHAIN, ttl=LONG)

        first = await flows.take(flow_id, taker="a", lease=LONG)
        assert [(node.key, node.kind, node.call, node.run) for node in first.nodes] == [("0", "call", b"first", 0)]
        assert isinstance(await other.start(flow_id, "1", owner="x", seconds=LONG, takes_over=True), BusyNode)
        assert await take_all(other, flow_id, await end_node(other, flow_id, "0"), taker="0") == ["1"]
        assert await take_all(other, flow_id, await end_node(other, flow_id, "1"), taker="1") == [FINISH]

        assert set((await flows.states(flow_id)).values()) == {NodeState.SUCCEEDED}
        assert await _values(flows, flow_id, ["1", "0", "9"]) == [b"1", b"1", None]
        assert await flows.ended_keys(flow_id, offset=0, limit=10) == ["0", "1"]
        assert await flows.ended_keys(flow_id, offset=1, limit=10) == ["1"]
        record = await flows.look(flow_id)
        assert record is not None
        assert record.unfinished == 0

    @case
    async def test_a_taken_node_is_exclusive_until_its_lease_ends(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", CHAIN, ttl=LONG)

        assert taken_keys(await flows.take(flow_id, taker="a", lease=self.short)) == ["0"]
        assert taken_keys(await other.take(flow_id, taker="b", lease=LONG)) == []
        assert taken_keys(await other.take(flow_id, taker="b", lease=LONG, again=True)) == []
        assert taken_keys(await other.take(flow_id, taker="a", lease=self.short, again=True)) == ["0"]
        await self.advance(self.short * 1.5)
        assert taken_keys(await other.take(flow_id, taker="b", lease=LONG)) == ["0"]
        assert taken_keys(await flows.take(flow_id, taker="a", lease=LONG, again=True)) == []
        assert taken_keys(await other.mark_done(flow_id, ["0"], taker="b", lease=LONG)) == []
        assert taken_keys(await other.take(flow_id, taker="b", lease=LONG, again=True)) == []

    @case
    async def test_only_one_run_of_a_node_starts_at_a_time(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", CHAIN, ttl=LONG)

        first = await flows.start(flow_id, "0", owner="a", seconds=self.short, takes_over=False)
        assert isinstance(first, BegunNode)
        assert first.call == b"first"
        assert await flows.start(flow_id, "0", owner="a", seconds=self.short, takes_over=False) == first
        busy = await other.start(flow_id, "0", owner="b", seconds=LONG, takes_over=False)
        assert isinstance(busy, BusyNode)
        assert 0 < busy.left <= self.short
        assert await flows.renew(flow_id, "0", token=first.token, seconds=self.short * 3)
        await self.advance(self.short * 1.5)
        assert isinstance(await other.start(flow_id, "0", owner="b", seconds=LONG, takes_over=False), BusyNode)
        await self.advance(self.short * 2.5)
        second = await other.start(flow_id, "0", owner="b", seconds=LONG, takes_over=False)
        assert isinstance(second, BegunNode)
        assert second.token > first.token
        assert not await flows.renew(flow_id, "0", token=first.token, seconds=LONG)
        third = await flows.start(flow_id, "0", owner="c", seconds=LONG, takes_over=True)
        assert isinstance(third, BegunNode)
        assert third.token > second.token
        await other.release(flow_id, "0", token=second.token)
        assert isinstance(await other.start(flow_id, "0", owner="d", seconds=LONG, takes_over=False), BusyNode)
        await other.release(flow_id, "0", token=third.token)
        assert isinstance(await other.start(flow_id, "0", owner="d", seconds=LONG, takes_over=False), BegunNode)

    @case
    async def test_an_end_counts_once_and_only_from_the_latest_run(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", CHAIN, ttl=LONG)
        await flows.take(flow_id, taker="a", lease=LONG)
        stale = await begin_node(flows, flow_id, "0")
        again = await flows.start(flow_id, "0", owner="z", seconds=LONG, takes_over=True)
        assert isinstance(again, BegunNode)

        async def try_end(token: int, state: NodeState) -> list[str] | None:
            taken = await other.end(flow_id, "0", token=token, state=state, value=b"7", taker="0", lease=LONG)
            return None if taken is None else taken_keys(taken)

        assert await try_end(stale, NodeState.SUCCEEDED) is None
        assert await try_end(0, NodeState.FAILED) is None
        assert await try_end(again.token, NodeState.SUCCEEDED) == ["1"]
        assert await try_end(again.token, NodeState.SUCCEEDED) == ["1"]
        assert await try_end(again.token, NodeState.FAILED) is None
        assert await try_end(stale, NodeState.SUCCEEDED) is None
        assert await try_end(0, NodeState.FAILED) is None
        ended = await flows.start(flow_id, "0", owner="y", seconds=LONG, takes_over=True)
        assert ended == EndedNode(NodeState.SUCCEEDED, b"7")

    @case
    async def test_a_node_that_cannot_be_published_ends_without_a_run(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", CHAIN, ttl=LONG)
        await flows.take(flow_id, taker="a", lease=LONG)

        ended = await flows.end(flow_id, "0", token=0, state=NodeState.FAILED, value=b"", taker="a", lease=LONG)

        assert ended is not None
        assert await take_all(flows, flow_id, ended, taker="a") == [FINISH]
        assert await flows.states(flow_id) == {"0": NodeState.FAILED, "1": NodeState.UPSTREAM_FAILED}

    @case
    async def test_unknown_flows_and_nodes_have_no_effect(self) -> None:
        flows = self.state().flows
        flow_id, other = new("flow"), new("flow")
        await flows.create(other, b"", CHAIN, ttl=LONG)

        for name, key in ((flow_id, "0"), (other, "5")):
            assert await flows.start(name, key, owner="a", seconds=LONG, takes_over=False) is None
            assert not await flows.renew(name, key, token=1, seconds=LONG)
            await flows.release(name, key, token=1)
            ended = await flows.end(name, key, token=1, state=NodeState.FAILED, value=b"", taker="a", lease=LONG)
            assert ended is None
        assert await flows.take(flow_id, taker="a", lease=LONG) == Taken((), is_more=False)
        assert await flows.mark_done(flow_id, ["0"], taker="a", lease=LONG) == Taken((), is_more=False)
        await flows.expand(flow_id, "0", [b"x"], first=0, total=1)
        assert await flows.cancel(flow_id, reason="no") is None
        assert await flows.redrive(flow_id) == 0
        assert await flows.states(flow_id) == {}
        assert await flows.outcomes(flow_id, ["0"]) == [None]
        assert await flows.calls(flow_id, ["0"]) == [None]
        assert await flows.ended_keys(flow_id, offset=0, limit=5) == []

    @case
    async def test_a_map_gets_its_children_once_and_waits_for_all(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        nodes = (
            FlowNode(key="0"),
            FlowNode(key="1", kind="map", after=("0",), call=b"template"),
            FlowNode(key="2", after=("1",)),
        )
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        taken = await end_node(flows, flow_id, "0")
        assert [(node.key, node.kind) for node in taken.nodes] == [("1", "map")]

        await flows.expand(flow_id, "1", [b"a", b"b"], first=0, total=3)
        early = await flows.mark_done(flow_id, [], taker="0", lease=LONG)
        assert taken_keys(early) == ["1.0", "1.1"]
        await take_all(other, flow_id, await end_node(other, flow_id, "1.0"), taker="1.0")
        for _ in range(2):
            await other.expand(flow_id, "1", [b"b", b"c"], first=1, total=3)
        assert (await flows.calls(flow_id, ["1.0", "1.1", "1.2"])) == [b"a", b"b", b"c"]
        await flows.mark_done(flow_id, ["1"], taker="0", lease=LONG)
        assert (await flows.states(flow_id))["1"] is NodeState.READY
        await end_node(flows, flow_id, "1.2", value=b"9")
        taken = await end_node(flows, flow_id, "1.1")

        assert await take_all(flows, flow_id, taken, taker="1.1") == ["2"]
        assert await _values(flows, flow_id, ["1", "1.2"]) == [b"3", b"9"]
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "2"), taker="2") == [FINISH]

    @case
    async def test_an_empty_map_succeeds_and_a_map_with_a_failed_child_fails(self) -> None:
        flows = self.state().flows
        flow_id = ""
        for children in (0, 2):
            flow_id = new("flow")
            await flows.create(flow_id, b"", [FlowNode(key="m", kind="map")], ttl=LONG)
            await flows.take(flow_id, taker="a", lease=LONG)
            await flows.expand(flow_id, "m", [b"x"] * children, first=0, total=children)
            await take_all(flows, flow_id, await flows.mark_done(flow_id, ["m"], taker="a", lease=LONG), taker="a")
            for number in range(children):
                state = NodeState.SUCCEEDED if number else NodeState.FAILED
                await take_all(flows, flow_id, await end_node(flows, flow_id, f"m.{number}", state), taker="b")

            found = (await flows.states(flow_id))["m"]
            assert found is (NodeState.FAILED if children else NodeState.SUCCEEDED)

        assert await flows.redrive(flow_id) == 2
        assert await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a") == ["m.0"]
        await take_all(flows, flow_id, await end_node(flows, flow_id, "m.0"), taker="b")
        assert set((await flows.states(flow_id)).values()) == {NodeState.SUCCEEDED}

    @case
    async def test_an_incomplete_map_fails_once_its_existing_children_end(self) -> None:
        flows = self.state().flows
        for gaps in ([(1, 1, 3), (2, 1, 3)], [(0, 1, 2), (0, 0, 0)], [(2, 0, 2)]):
            flow_id = new("flow")
            nodes = [FlowNode(key="m", kind="map"), FlowNode(key="last", rule="always", after=("m",))]
            await flows.create(flow_id, b"", nodes, ttl=LONG)
            await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
            for first, count, total in gaps:
                await flows.expand(flow_id, "m", [b"x"] * count, first=first, total=total)
            out = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
            children = [key for key in out if key != "last"]
            for key in children:
                assert (await flows.states(flow_id))["m"] is NodeState.READY, gaps
                out += await take_all(flows, flow_id, await end_node(flows, flow_id, key), taker=key)

            assert (await flows.states(flow_id))["m"] is NodeState.FAILED, gaps
            assert out == [*children, "last"]

    @case
    async def test_a_started_map_ends_with_its_children_regardless_of_predecessors(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        nodes = [
            FlowNode(key="fast"),
            FlowNode(key="slow"),
            FlowNode(key="map", kind="map", rule="any", after=("fast", "slow")),
            FlowNode(key="last", after=("map",)),
        ]
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        taken = await flows.take(flow_id, taker="a", lease=LONG)
        assert await take_all(flows, flow_id, taken, taker="a") == ["fast", "slow"]
        taken = await end_node(flows, flow_id, "fast")
        assert await take_all(flows, flow_id, taken, taker="fast") == ["map"]
        await flows.expand(flow_id, "map", [b"x"], first=0, total=1)
        taken = await flows.take(flow_id, taker="a", lease=LONG)
        assert await take_all(flows, flow_id, taken, taker="a") == ["map.0"]

        taken = await end_node(flows, flow_id, "map.0")

        assert await take_all(flows, flow_id, taken, taker="map.0") == ["last"]
        taken = await end_node(flows, flow_id, "slow", NodeState.FAILED)
        assert await take_all(flows, flow_id, taken, taker="slow") == []
        assert (await flows.states(flow_id))["map"] is NodeState.SUCCEEDED

    @case
    async def test_a_map_runs_at_most_its_limit_of_children(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", [FlowNode(key="m", kind="map", limit=3)], ttl=LONG)
        await flows.take(flow_id, taker="a", lease=LONG)
        await flows.expand(flow_id, "m", [b"x"] * 10, first=0, total=10)

        out = await take_all(flows, flow_id, await flows.mark_done(flow_id, ["m"], taker="a", lease=LONG), taker="a")
        seen = len(out)
        while out:
            assert len(out) <= 3
            key = out.pop(0)
            state = NodeState.FAILED if key == "m.4" else NodeState.SUCCEEDED
            found = await take_all(flows, flow_id, await end_node(flows, flow_id, key, state), taker=key)
            out += [each for each in found if each != FINISH]
            seen += len(found)

        assert seen == 11

    @case
    async def test_a_batch_accepts_children_until_closed_and_then_waits_for_all(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        nodes = [FlowNode(key="0", kind="batch"), FlowNode(key="1", after=("0",))]
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        assert taken_keys(await flows.take(flow_id, taker="a", lease=LONG)) == []
        assert (await flows.states(flow_id))["0"] is NodeState.READY

        assert await flows.append(flow_id, "0", [b"a", b"b"]) == 0
        await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "0.0"), taker="0.0") == []
        assert await other.append(flow_id, "0", [b"c"]) == 2
        assert await other.append(flow_id, "0", [], closes=True) == 3
        assert await flows.append(flow_id, "0", [], closes=True) == 3
        assert await flows.append(flow_id, "0", [b"d"]) is None
        assert await flows.append(flow_id, "0", [b"d"], closes=True) is None
        taken = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")

        assert taken == ["0.2"]
        assert await flows.calls(flow_id, ["0.0", "0.1", "0.2", "0.3"]) == [b"a", b"b", b"c", None]
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "0.2"), taker="0.2") == []
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "0.1"), taker="0.1") == ["1"]
        assert await _values(flows, flow_id, ["0"]) == [b"3"]
        assert await flows.append(flow_id, "0", [], closes=True) == 3
        assert await flows.append(flow_id, "0", [b"d"]) is None
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "1"), taker="1") == [FINISH]

    @case
    async def test_a_named_child_is_added_to_a_batch_once(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", [FlowNode(key="0", kind="batch")], ttl=LONG)

        numbers = [
            await store.append(flow_id, "0", [b"x"] * count, name=name)
            for store, name, count in (
                (flows, "a ☂", 2),
                (other, "b", 1),
                (other, "a ☂", 2),
                (flows, "", 1),
                (flows, "", 1),
                (flows, "b", 1),
            )
        ]
        assert numbers == [0, 2, 0, 3, 4, 2]
        assert await flows.append(flow_id, "0", [b"x"], name="last", closes=True) == 5
        assert await other.append(flow_id, "0", [b"x"], name="last", closes=True) == 5
        assert await other.append(flow_id, "0", [b"x"], name="a ☂") == 0
        assert len(await flows.states(flow_id)) == 7

    @case
    async def test_only_an_existing_batch_accepts_children(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        nodes = [FlowNode(key="0", kind="batch"), FlowNode(key="1"), FlowNode(key="2", kind="map")]
        await flows.create(flow_id, b"", nodes, ttl=LONG)

        assert await flows.append(new("flow"), "0", [b"x"]) is None
        for key in ("1", "2", "3", "0.0"):
            assert await flows.append(flow_id, key, [b"x"], closes=True) is None
        await flows.cancel(flow_id, reason="no")
        assert await flows.append(flow_id, "0", [b"x"]) is None
        assert await flows.append(flow_id, "0", [], closes=True) is None

    @case
    async def test_an_empty_batch_succeeds_when_closed(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", [FlowNode(key="0", kind="batch")], ttl=LONG)

        assert await flows.append(flow_id, "0", [], closes=True) == 0
        taken = await flows.take(flow_id, taker="a", lease=LONG)

        assert taken_keys(taken) == [FINISH]
        assert await _values(flows, flow_id, ["0"]) == [b"0"]

    @case
    async def test_a_batch_runs_at_most_its_limit_of_children(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", [FlowNode(key="b", kind="batch", limit=2)], ttl=LONG)
        for _ in range(3):
            await flows.append(flow_id, "b", [b"x"] * 2)

        out = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        ran = list[str]()
        await flows.append(flow_id, "b", [], closes=True)
        while out and out[0] != FINISH:
            assert len(out) <= 2
            key = out.pop(0)
            ran.append(key)
            out += await take_all(flows, flow_id, await end_node(flows, flow_id, key), taker=key)

        assert sorted(ran) == [f"b.{number}" for number in range(6)]
        assert out == [FINISH]

    @case
    async def test_several_takers_share_a_wide_graph_without_duplicates(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        middle = [f"m{number}" for number in range(self.wide)]
        nodes = [
            FlowNode(key="first"),
            *(FlowNode(key=key, after=("first",)) for key in middle),
            FlowNode(key="last", after=tuple(middle)),
        ]
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")

        taken = await end_node(flows, flow_id, "first")
        assert 0 < len(taken.nodes) < self.wide
        halves = await asyncio.gather(
            take_all(flows, flow_id, taken, taker="first"),
            take_all(other, flow_id, await other.take(flow_id, taker="b", lease=LONG), taker="b"),
        )

        assert sorted([*halves[0], *halves[1]]) == sorted(middle)

        async def end(key: str) -> list[str]:
            return await take_all(other, flow_id, await end_node(other, flow_id, key), taker=key)

        out: list[str] = []
        for at in range(0, self.wide, 100):
            for found in await asyncio.gather(*map(end, middle[at : at + 100])):
                out += found
        assert out == ["last"]

    @case
    async def test_a_flow_without_nodes_is_finished(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")

        await flows.create(flow_id, b"", (), ttl=LONG)

        assert taken_keys(await flows.take(flow_id, taker="a", lease=LONG)) == [FINISH]

    @case
    async def test_a_forgotten_flow_can_be_created_again_among_many(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        for each in (*(new("other") for _ in range(12)), flow_id):
            assert await flows.create(each, b"", CHAIN, ttl=self.short)
        await self.advance(self.short * 1.5)

        assert await flows.create(flow_id, b"new", CHAIN, ttl=LONG)

        assert (await flows.states(flow_id))["0"] is NodeState.READY

    @case
    async def test_a_flow_expires_and_each_change_renews_its_expiry(self) -> None:
        flows, other = self.state().flows, self.state().flows
        forgotten, kept = new("flow"), new("flow")
        for flow_id in (forgotten, kept):
            await flows.create(flow_id, b"", CHAIN, ttl=self.short)
        await self.advance(self.short * 0.7)
        await end_node(flows, kept, "0")
        await self.advance(self.short * 0.7)

        assert await other.look(forgotten) is None
        assert await other.states(forgotten) == {}
        assert await other.start(forgotten, "0", owner="a", seconds=LONG, takes_over=False) is None
        assert (await other.states(kept))["0"] is NodeState.SUCCEEDED
        assert await other.create(forgotten, b"new", CHAIN, ttl=LONG)
        assert (await other.states(forgotten))["0"] is NodeState.READY

    @case
    async def test_the_state_keeps_working_after_cancelled_calls(self) -> None:
        flows = self.state().flows

        for point in CancelPoint.ALL:
            flow_id = new("flow")
            await cancel_at(point, flows.create(flow_id, b"", CHAIN, ttl=LONG), within=self.patience)
            await flows.create(flow_id, b"", CHAIN, ttl=LONG)
            start = flows.start(flow_id, "0", owner="a", seconds=LONG, takes_over=False)
            await cancel_at(point, start, within=self.patience)
            begun = await flows.start(flow_id, "0", owner="a", seconds=LONG, takes_over=False)
            assert isinstance(begun, BegunNode)
            await cancel_at(
                point,
                flows.end(
                    flow_id, "0", token=begun.token, state=NodeState.SUCCEEDED, value=b"", taker="0", lease=LONG
                ),
                within=self.patience,
            )
            try_end = await flows.end(
                flow_id, "0", token=begun.token, state=NodeState.SUCCEEDED, value=b"", taker="0", lease=LONG
            )
            assert try_end is not None
            # The first one was not taken; the answer to the end has the same taker.
            assert "1" in taken_keys(try_end)
