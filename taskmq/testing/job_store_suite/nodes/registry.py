"""Tests of nodes: reported, drained, lost; and of their workers."""

from msgspec.structs import replace

from taskmq.contracts.jobs import JobStore
from taskmq.model.nodes import HostNode, NodeTold
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.runner import case

_TOLD = NodeTold(
    name="gpu-1",
    address="10.0.0.7",
    capacity={"cpu": 8.0, "gpu": 2.0},
    labels={"region": "eu"},
    version="1",
    lost_after=3_600_000,
    runs_jobs=True,
)


_WORKER = WorkerStatus(
    name="w",
    host="h",
    pid=7,
    version="1",
    app="shop",
    queues=["work"],
    state="running",
    slots=4,
    running=1,
    backlog=0,
    ended=0,
    abandoned=0,
    memory=0,
    descriptors=0,
    loop_lag=0.0,
    started=1,
    node=_TOLD,
)


async def node_of(store: JobStore, name: str) -> HostNode:
    """Return the node in the store."""
    return next(node for node in await store.nodes.nodes() if node.name == name)


class NodeCases(JobStoreCase):
    """Every guarantee of `NodeStore` about nodes."""

    @case
    async def test_a_reported_node_is_visible_to_every_process(self) -> None:
        store, other = self.store(), self.store()
        assert await store.nodes.nodes() == []

        await store.nodes.report([_TOLD, NodeTold(name="b")])

        first, second = await other.nodes.nodes()
        assert (first.name, second.name) == ("b", "gpu-1")
        assert (second.told, second.state, second.used) == (_TOLD, "available", {})
        assert second.epoch == second.registered == second.heartbeat > 0
        assert first.id != second.id

    @case
    async def test_a_node_that_reports_again_keeps_its_id_and_updates_its_data(self) -> None:
        store = self.store()
        await store.nodes.report([_TOLD])
        before = await node_of(store, "gpu-1")
        changed = NodeTold(name="gpu-1", capacity={"cpu": 4.0})

        await store.nodes.report([changed])

        after = await node_of(store, "gpu-1")
        assert (after.id, after.registered, after.told) == (before.id, before.registered, changed)
        assert after.heartbeat >= before.heartbeat

    @case
    async def test_a_silent_node_is_lost_once_and_returns_with_a_new_epoch(self) -> None:
        store = self.store()
        await store.nodes.report([NodeTold(name="a", lost_after=0), NodeTold(name="b"), _TOLD])

        first = (await node_of(store, "a")).epoch

        assert await store.nodes.expire() == ["a"]
        assert await store.nodes.expire() == []
        lost = await node_of(store, "a")
        assert (lost.state, lost.epoch) == ("lost", first + 1)

        await store.nodes.report([NodeTold(name="a", lost_after=3_600_000)])
        back = await node_of(store, "a")
        assert (back.state, back.epoch) == ("available", first + 1)
        assert (await node_of(store, "b")).epoch == first

    @case
    async def test_an_operator_can_drain_and_resume_a_node(self) -> None:
        store = self.store()
        await store.nodes.report([_TOLD])

        drained = await store.nodes.drain("gpu-1", drains=True)
        await store.nodes.report([_TOLD])
        assert drained is not None
        assert (drained.state, (await node_of(store, "gpu-1")).state) == ("draining", "draining")

        resumed = await store.nodes.drain("gpu-1", drains=False)
        assert resumed is not None
        assert resumed.state == "available"
        assert await store.nodes.drain("nobody", drains=True) is None

    @case
    async def test_an_owner_marking_a_node_busy_counts_as_a_heartbeat(self) -> None:
        store = self.store()
        await store.nodes.report([NodeTold(name="a", lost_after=0)])
        await store.nodes.expire()

        busy = await store.nodes.set_busy("a", is_busy=True)
        assert busy is not None
        assert (busy.state, busy.is_lost) == ("busy", False)

        free = await store.nodes.set_busy("a", is_busy=False)
        assert free is not None
        assert free.state == "available"
        assert await store.nodes.set_busy("nobody", is_busy=True) is None

    @case
    async def test_a_removed_node_is_no_longer_found(self) -> None:
        store = self.store()
        await store.nodes.report([_TOLD])

        assert await store.nodes.remove("gpu-1")
        assert not await store.nodes.remove("gpu-1")
        assert await store.nodes.nodes() == []

    @case
    async def test_the_last_status_of_each_worker_is_kept_until_it_stops(self) -> None:
        store, other = self.store(), self.store()
        same_name = replace(_WORKER, host="other\0")
        before = await store.now_ms()
        await store.nodes.report_workers([same_name, _WORKER])
        await store.nodes.report_workers([replace(_WORKER, running=3)])
        await store.nodes.report_workers([])

        first, second = await other.nodes.workers()
        assert (replace(first, at=0), replace(second, at=0, host="")) == (
            replace(_WORKER, running=3),
            replace(same_name, host=""),
        )
        assert before <= second.at <= first.at <= await store.now_ms()

        await other.nodes.forget_workers([_WORKER, replace(_WORKER, pid=8)])
        await store.nodes.expire()
        (left,) = await store.nodes.workers()
        assert left.at == second.at
