"""Tests of lists of workflows."""

from taskmq.contracts.stores.flows import FlowCursor, FlowEntry, FlowNode, FlowStore, NodeState
from taskmq.testing.runner import case
from taskmq.testing.state_suite.case import LONG, StateCase, new
from taskmq.testing.state_suite.flows.driver import CHAIN, end_node, take_all

__all__ = ["FlowLists"]


async def _list_all(flows: FlowStore, *, tenant: str | None, limit: int = 100) -> list[FlowEntry]:
    """Return all flows, page by page, newest first."""
    found: list[FlowEntry] = []
    after: FlowCursor | None = None
    while True:
        page = await flows.entries(tenant=tenant, after=after, limit=limit)
        assert len(page.entries) <= limit
        found += page.entries
        if (after := page.after) is None:
            places = [(entry.record.started, entry.id) for entry in found]
            assert places == sorted(set(places), reverse=True)
            return found


class FlowLists(StateCase):
    """Every guarantee of the lists of a `FlowStore`."""

    @case
    async def test_flows_are_listed_in_pages_each_once(self) -> None:
        flows, other = self.state().flows, self.state().flows
        tenant = new("t")
        # Some share a millisecond, so that their ids decide the order.
        made = [f"@{tenant}:{new('flow')}" for _ in range(7)]
        for flow_id in made:
            assert await flows.create(flow_id, flow_id.encode(), CHAIN, ttl=LONG)
        await flows.create(made[0], b"again", (), ttl=LONG)

        found = await _list_all(other, tenant=tenant, limit=3)

        assert {entry.id for entry in found} == set(made)
        assert [entry.record.head for entry in found] == [entry.id.encode() for entry in found]
        assert {(entry.nodes, entry.record.unfinished) for entry in found} == {(2, 2)}
        assert [entry.record for entry in found] == [await other.look(entry.id) for entry in found]
        assert await _list_all(other, tenant=tenant, limit=7) == found
        everybodys = await _list_all(other, tenant=None)
        assert [entry for entry in everybodys if entry.id in made] == found
        assert await _list_all(other, tenant=new("t")) == []

    @case
    async def test_flows_without_a_tenant_are_listed_separately(self) -> None:
        flows = self.state().flows
        own, foreign = new("flow"), f"@{new('t')}:flow"
        await flows.create(own, b"", CHAIN, ttl=LONG)
        await flows.create(foreign, b"", CHAIN, ttl=LONG)

        nobodys = {entry.id for entry in await _list_all(flows, tenant="")}

        assert own in nobodys
        assert foreign not in nobodys

    @case
    async def test_flows_are_listed_from_a_start_time_to_before_an_end_time(self) -> None:
        flows = self.state().flows
        tenant = new("t")
        instants: list[int] = []
        for number in range(3):
            await flows.create(f"@{tenant}:{number}", b"", CHAIN, ttl=LONG)
            record = await flows.look(f"@{tenant}:{number}")
            assert record is not None
            instants.append(record.started)
            await self.advance(0.01)
        first, second, third = instants
        assert first < second < third

        async def ids(since: int | None = None, before: int | None = None) -> list[str]:
            page = await flows.entries(tenant=tenant, since=since, before=before)
            return [entry.id.rpartition(":")[2] for entry in page.entries]

        assert await ids(since=second) == ["2", "1"]
        assert await ids(before=second) == ["0"]
        assert await ids(since=second, before=third) == ["1"]
        assert await ids(since=third + 1) == []
        page = await flows.entries(tenant=tenant, after=FlowCursor(third, f"@{tenant}:2"), before=third, limit=1)
        assert [entry.record.started for entry in page.entries] == [second]

    @case
    async def test_a_listed_ended_flow_names_its_failed_nodes(self) -> None:
        flows = self.state().flows
        tenant = new("t")
        flow_id = f"@{tenant}:flow"
        nodes = (
            FlowNode(key="0"),
            FlowNode(key="1"),
            FlowNode(key="2", kind="map", after=("1",)),
            FlowNode(key="3", after=("2",)),
        )
        await flows.create(flow_id, b"", nodes, ttl=LONG)
        await end_node(flows, flow_id, "0", NodeState.FAILED)
        await end_node(flows, flow_id, "1")
        await flows.expand(flow_id, "2", [b"a", b"b"], first=0, total=2)
        await take_all(flows, flow_id, await flows.take(flow_id, taker="x", lease=LONG), taker="x")
        await end_node(flows, flow_id, "2.0")
        (running,) = await _list_all(flows, tenant=tenant)
        await take_all(flows, flow_id, await end_node(flows, flow_id, "2.1", NodeState.FAILED), taker="2.1")
        (ended,) = await _list_all(flows, tenant=tenant)

        assert (sorted(running.failed), running.record.unfinished, running.nodes) == ([], 3, 6)
        assert (sorted(ended.failed), ended.record.unfinished, ended.nodes) == (["0", "2"], 0, 6)

    @case
    async def test_forgotten_flows_are_not_listed_and_running_ones_are(self) -> None:
        flows = self.state().flows
        tenant = new("t")
        await flows.create(f"@{tenant}:gone", b"", CHAIN, ttl=self.short)
        await flows.create(f"@{tenant}:kept", b"", CHAIN, ttl=self.short * 3)
        await self.advance(self.short * 1.6)
        await flows.take(f"@{tenant}:kept", taker="a", lease=LONG)
        await self.advance(self.short * 1.7)

        # Creating a flow removes expired ones.
        await flows.create(f"@{tenant}:later", b"", CHAIN, ttl=LONG)

        assert {entry.id for entry in await _list_all(flows, tenant=tenant)} == {
            f"@{tenant}:kept",
            f"@{tenant}:later",
        }
