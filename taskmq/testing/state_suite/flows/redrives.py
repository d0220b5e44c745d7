"""Tests of cancelled and redriven workflows."""

import asyncio

from taskmq.contracts.stores.flows import FINISH, EndedNode, FlowNode, FlowRecord, NodeState
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new
from taskmq.testing.state_suite.flows.driver import CHAIN, begin_node, end_node, take_all

__all__ = ["FlowRedrives"]


class FlowRedrives(StateCase):
    """Every guarantee of `cancel` and `redrive` of a `FlowStore`."""

    @case
    async def test_redriving_a_batch_reruns_failed_jobs_and_reopens_a_cancelled_one(
        self,
    ) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        nodes = [FlowNode(key="0", kind="batch"), FlowNode(key="1", after=("0",))]
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        await flows.append(flow_id, "0", [b"x"] * 3)
        await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        await take_all(flows, flow_id, await end_node(flows, flow_id, "0.0"), taker="b")
        await take_all(flows, flow_id, await end_node(flows, flow_id, "0.1", NodeState.FAILED), taker="b")
        await flows.cancel(flow_id, reason="no")
        await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")

        # Two jobs, the batch, and the step after it.
        assert await flows.redrive(flow_id) == 4
        again = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert sorted(again) == ["0.1", "0.2"]
        assert await flows.append(flow_id, "0", [b"y"], closes=True) == 3
        again += await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        ends = [NodeState.SUCCEEDED, NodeState.SUCCEEDED, NodeState.FAILED]
        for key, state in zip(again, ends, strict=True):
            await take_all(flows, flow_id, await end_node(flows, flow_id, key, state), taker="b")
        assert (await flows.states(flow_id))["1"] is NodeState.UPSTREAM_FAILED

        assert await flows.redrive(flow_id) == 3
        last = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert last == [again[-1]]
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, last[0]), taker="b") == ["1"]

    @case
    async def test_a_cancelled_flow_ends_except_for_its_running_nodes(self) -> None:
        flows, other = self.state().flows, self.state().flows
        flow_id = new("flow")
        nodes = [
            *(FlowNode(key=str(number)) for number in range(5)),
            FlowNode(key="last", rule="always", after=tuple(map(str, range(5)))),
        ]
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        token = await begin_node(flows, flow_id, "3")

        assert await other.cancel(flow_id, reason="not ☂ needed") == ["3"]

        record = await flows.look(flow_id)
        assert record is not None
        assert (record.unfinished, record.cancelled) == (1, "not ☂ needed")
        ended = await flows.start(flow_id, "2", owner="a", seconds=LONG, takes_over=False)
        assert ended == EndedNode(NodeState.CANCELLED, "not ☂ needed".encode())
        last = await flows.end(flow_id, "3", token=token, state=NodeState.SUCCEEDED, value=b"", taker="3", lease=LONG)
        assert last is not None
        assert await take_all(flows, flow_id, last, taker="3") == [FINISH]
        states = await flows.states(flow_id)
        assert states.pop("3") is NodeState.SUCCEEDED
        assert set(states.values()) == {NodeState.CANCELLED}

        assert await flows.redrive(flow_id) == 5
        record = await flows.look(flow_id)
        assert record is not None
        assert record == FlowRecord(head=b"", run=1, unfinished=5, started=record.started)
        out = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert sorted(out) == ["0", "1", "2", "4"]
        found: list[str] = []
        for key in out:
            found += await take_all(flows, flow_id, await end_node(flows, flow_id, key), taker=key)
        assert found == ["last"]

    @case
    async def test_redriving_a_map_cancelled_early_adds_its_missing_children(
        self,
    ) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", [FlowNode(key="m", kind="map"), FlowNode(key="1", after=("m",))], ttl=LONG)
        await flows.take(flow_id, taker="a", lease=LONG)
        await flows.expand(flow_id, "m", [b"x"], first=0, total=2)
        await flows.cancel(flow_id, reason="no")

        assert await flows.redrive(flow_id) == 3
        out = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert sorted(out) == ["m", "m.0"]
        await flows.expand(flow_id, "m", [b"x", b"y"], first=0, total=2)
        out = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert out == ["m.1"]
        await take_all(flows, flow_id, await end_node(flows, flow_id, "m.0"), taker="b")
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "m.1"), taker="b") == ["1"]

    @case
    async def test_a_redriven_incomplete_map_waits_for_its_predecessors(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        nodes = [FlowNode(key="1"), FlowNode(key="m", kind="map", rule="always", after=("1",))]
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        await end_node(flows, flow_id, "1", NodeState.CANCELLED)
        await flows.expand(flow_id, "m", [b"x"], first=0, total=2)
        await flows.cancel(flow_id, reason="no")

        assert await flows.redrive(flow_id) == 3
        out = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert sorted(out) == ["1", "m.0"]
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "m.0"), taker="b") == []
        assert (await flows.states(flow_id))["m"] is NodeState.WAITING
        assert await take_all(flows, flow_id, await end_node(flows, flow_id, "1"), taker="b") == ["m"]

    @case
    async def test_only_one_of_several_concurrent_redrives_applies(self) -> None:
        states = [self.state() for _ in range(4)]
        flows = states[0].flows
        flow_id = new("flow")
        nodes = [FlowNode(key=str(number)) for number in range(350)]
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        await flows.cancel(flow_id, reason="no")

        counts = await asyncio.gather(*(state.flows.redrive(flow_id) for state in states))

        assert sorted(counts) == [0, 0, 0, len(nodes)]
        record = await flows.look(flow_id)
        assert record is not None
        assert (record.run, record.unfinished) == (1, len(nodes))
        out = await take_all(flows, flow_id, await flows.take(flow_id, taker="a", lease=LONG), taker="a")
        assert sorted(out) == sorted(node.key for node in nodes)

    @case
    async def test_an_unfinished_or_succeeded_flow_is_not_redriven(self) -> None:
        flows = self.state().flows
        flow_id = new("flow")
        await flows.create(flow_id, b"", CHAIN, ttl=LONG)

        assert await flows.redrive(flow_id) == 0
        await end_node(flows, flow_id, "0")
        await end_node(flows, flow_id, "1")
        assert await flows.redrive(flow_id) == 0

        record = await flows.look(flow_id)
        assert record is not None
        assert record.run == 0
