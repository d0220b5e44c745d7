"""Tests of manual allocations, made for programs other than workers."""

import asyncio

import pytest

from taskmq.errors import InvalidOption
from taskmq.model.nodes import AllocationFilter, NewAllocation, NodeTold
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import new_id
from taskmq.testing.job_store_suite.nodes.registry import node_of
from taskmq.testing.runner import case

_NODES = [
    NodeTold(name="large", capacity={"cpu": 16.0}, labels={"region": "eu"}),
    NodeTold(name="small", capacity={"cpu": 4.0}),
]


def _new_allocation(cpu: float, node: str | None = None, **fields: object) -> NewAllocation:
    given: dict[str, object] = {"id": new_id(1), "job": "theirs", "tenant": "acme", **fields}
    return NewAllocation(node=node, amounts={"cpu": cpu}, **given)  # type: ignore[arg-type]


class AllocationCases(JobStoreCase):
    """Every guarantee of `NodeStore` about manual allocations."""

    @case
    async def test_an_allocation_uses_its_node_until_released(self) -> None:
        store = self.store()
        await store.nodes.report(_NODES)

        made = await store.nodes.allocate(_new_allocation(3.0))
        assert made is not None
        assert (made.node, made.job, made.tenant, made.amounts, made.ended) == (
            "small",
            "theirs",
            "acme",
            {"cpu": 3.0},
            None,
        )
        assert (await node_of(store, "small")).used == {"cpu": 3.0}

        released = await store.nodes.release(made.id)
        assert released is not None
        assert released.ended is not None
        assert await store.nodes.release(made.id) == released
        assert (await node_of(store, "small")).used == {}
        assert await store.nodes.release("nobody knows it") is None

    @case
    async def test_the_node_with_the_least_remaining_capacity_is_chosen(self) -> None:
        store = self.store()
        await store.nodes.report(_NODES)

        found = [await store.nodes.allocate(_new_allocation(cpu)) for cpu in (4.0, 4.0, 12.0, 1.0)]

        assert [None if each is None else each.node for each in found] == ["small", "large", "large", None]

    @case
    async def test_an_allocation_can_require_a_node_or_labels(self) -> None:
        store = self.store()
        await store.nodes.report(_NODES)

        named = await store.nodes.allocate(_new_allocation(1.0, "large"))
        labelled = await store.nodes.allocate(_new_allocation(1.0, labels={"region": "eu"}))

        assert named is not None
        assert labelled is not None
        assert (named.node, labelled.node) == ("large", "large")
        assert await store.nodes.allocate(_new_allocation(5.0, "small")) is None
        assert await store.nodes.allocate(_new_allocation(1.0, "nobody")) is None
        assert await store.nodes.allocate(_new_allocation(1.0, labels={"region": "us"})) is None

    @case
    async def test_nothing_is_allocated_on_a_closed_node(self) -> None:
        store = self.store()
        await store.nodes.report([NodeTold(name="a", capacity={"cpu": 8.0}, lost_after=0)])
        await store.nodes.drain("a", drains=True)
        assert await store.nodes.allocate(_new_allocation(1.0)) is None

        await store.nodes.drain("a", drains=False)
        await store.nodes.set_busy("a", is_busy=True)
        assert await store.nodes.allocate(_new_allocation(1.0)) is None

        await store.nodes.set_busy("a", is_busy=False)
        await store.nodes.expire()
        assert await store.nodes.allocate(_new_allocation(1.0)) is None

    @case
    async def test_the_same_id_again_is_the_same_allocation(self) -> None:
        store = self.store()
        await store.nodes.report(_NODES)
        asked = _new_allocation(3.0)

        first, again = await store.nodes.allocate(asked), await store.nodes.allocate(asked)

        assert first == again
        assert (await node_of(store, "small")).used == {"cpu": 3.0}
        with pytest.raises(InvalidOption, match="something else"):
            await store.nodes.allocate(_new_allocation(1.0, id=asked.id))

    @case
    async def test_an_allocation_ends_at_its_time_or_with_its_node(self) -> None:
        store = self.store()
        await store.nodes.report([*_NODES, NodeTold(name="weak", capacity={"gpu": 1.0}, lost_after=0)])
        over = await store.nodes.allocate(_new_allocation(1.0, ttl=0))
        gone = await store.nodes.allocate(NewAllocation(id=new_id(2), node="weak", amounts={"gpu": 1.0}))
        assert over is not None
        assert gone is not None

        assert await store.nodes.expire() == ["weak"]

        assert (await node_of(store, "small")).used == {}
        assert (await node_of(store, "weak")).used == {}
        assert await store.nodes.allocations(AllocationFilter(is_open=True)) == []
        ended = {each.id: each.ended for each in await store.nodes.allocations(AllocationFilter())}
        assert ended[over.id] == over.since
        assert ended[gone.id] is not None

    @case
    async def test_allocations_are_listed_by_node_job_tenant_and_time(self) -> None:
        store = self.store()
        await store.nodes.report(_NODES)
        first = await store.nodes.allocate(_new_allocation(1.0, "large", job="a"))
        second = await store.nodes.allocate(_new_allocation(1.0, "small", job="b", tenant="other"))
        assert first is not None
        assert second is not None
        await store.nodes.release(first.id)

        async def ids(**fields: object) -> list[str]:
            which = AllocationFilter(**fields)  # type: ignore[arg-type]
            return [each.id for each in await store.nodes.allocations(which)]

        assert await ids() == [second.id, first.id]
        assert await ids(node="large") == [first.id]
        assert await ids(job="b") == [second.id]
        assert await ids(tenant="acme") == [first.id]
        assert await ids(is_open=True) == [second.id]
        assert await ids(until=first.since) == []
        assert await ids(since=await store.now_ms() + 1_000) == [second.id]
        page = await store.nodes.allocations(AllocationFilter(), limit=1)
        assert [each.id for each in page] == [second.id]
        assert [each.id for each in await store.nodes.allocations(AllocationFilter(), after=second.id)] == [first.id]

    @case
    async def test_concurrent_allocations_never_exceed_capacity(self) -> None:
        stores = [self.store() for _ in range(4)]
        await stores[0].nodes.report(_NODES)

        made = await asyncio.gather(
            *(store.nodes.allocate(_new_allocation(3.0)) for store in stores for _ in range(4))
        )

        given = [each.node for each in made if each is not None]
        assert sorted(given) == ["large"] * 5 + ["small"]
        assert {node.name: node.used for node in await stores[0].nodes.nodes()} == {
            "large": {"cpu": 15.0},
            "small": {"cpu": 3.0},
        }
