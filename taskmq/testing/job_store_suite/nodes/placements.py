"""Tests of jobs placed on nodes."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchBatch, JobDetail, JobRecord, Lane, Pick, PlacedJob, UnplacedJob
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.nodes import AllocationFilter, JobNeeds, NodeTold, Placement
from taskmq.model.states import JobState
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver, error, ids
from taskmq.testing.job_store_suite.nodes.registry import node_of
from taskmq.testing.runner import case

_NODE = NodeTold(name="a", capacity={"slots": 8.0, "cpu": 4.0}, lost_after=0, runs_jobs=True)
_NEEDS = JobNeeds(resources={"cpu": 3.0}, labels={"region": "eu"})


def _placement(job: str, *, cpu: float = 3.0, node: str = "a", epoch: int = 0, gang: str = "") -> Placement:
    """Return a placement; `_place` replaces epoch 0 by the node's current one."""
    return Placement(job=job, tenant="", task="send_mail", node=node, epoch=epoch, amounts={"cpu": cpu}, gang=gang)


async def _place(driver: JobDriver, placements: Sequence[Placement]) -> DispatchBatch | None:
    partition = driver.schedulers.partition_of(QUEUE)
    return await driver.store.nodes.place(
        partition, await driver.epoch(partition), await _with_epochs(driver, placements)
    )


async def _with_epochs(driver: JobDriver, placements: Sequence[Placement]) -> list[Placement]:
    """Return the placements with the current epochs of their nodes."""
    epochs = {node.name: node.epoch for node in await driver.store.nodes.nodes()}
    return [replace(each, epoch=each.epoch or epochs.get(each.node, 1)) for each in placements]


class PlacementCases(JobStoreCase):
    """Every guarantee of `NodeStore` about jobs."""

    @case
    async def test_the_first_jobs_of_lanes_are_listed_with_their_needs(self) -> None:
        driver = self.driver()
        first = await driver.submit(detail=JobDetail(needs=_NEEDS))
        second = await driver.submit(expires=HOUR)
        await driver.submit(due=HOUR)
        other = await driver.submit(tenant="acme", priority=7)

        found = await driver.store.nodes.waiting(
            [
                Pick(Lane(QUEUE, 7, "acme"), 5),
                Pick(Lane(QUEUE, first.priority, ""), 2),
                Pick(Lane("nobody knows it", 4, ""), 5),
            ]
        )

        assert found == [
            UnplacedJob(
                id=other.id, tenant="acme", queue=QUEUE, priority=7, task="send_mail", due=other.due, is_first=True
            ),
            UnplacedJob(
                id=first.id,
                tenant="",
                queue=QUEUE,
                priority=first.priority,
                task="send_mail",
                due=first.due,
                is_first=True,
                needs=_NEEDS,
            ),
            UnplacedJob(
                id=second.id,
                tenant="",
                queue=QUEUE,
                priority=second.priority,
                task="send_mail",
                due=second.due,
                is_first=True,
                expires=second.expires,
            ),
        ]

    @case
    async def test_the_jobs_of_a_lane_after_a_cursor_are_listed(self) -> None:
        driver = self.driver()
        jobs = sorted([*(await driver.submit_many(3)), await driver.submit()], key=lambda job: (job.due, job.id))
        lane = Lane(QUEUE, jobs[0].priority, "")
        (other,) = [await driver.submit(tenant="acme")]
        picks = [Pick(lane, 2), Pick(Lane(QUEUE, other.priority, "acme"), 2)]

        (first, second, _) = await driver.store.nodes.waiting(picks)
        found = await driver.store.nodes.waiting(picks, behind={lane: first.place})

        assert [one.id for one in found] == [second.id, jobs[2].id, other.id]
        assert second.lane == lane
        assert await driver.store.nodes.waiting([Pick(lane, 2)], behind={lane: (jobs[-1].due, jobs[-1].id)}) == []

    @case
    async def test_a_job_is_placed_and_dispatched_in_one_step(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        first, second = await driver.submit_many(2, detail=JobDetail(owner="ann"))

        batch = await _place(driver, [_placement(second.id)])

        assert batch is not None
        (job,) = batch.jobs
        assert (job.id, job.node, job.queue, job.owner) == (second.id, "a", QUEUE, "ann")
        record = await driver.read(second)
        assert (record.state, record.token) == (JobState.DISPATCHED, job.token)
        assert await driver.state(first) is JobState.QUEUED
        assert await driver.store.nodes.find_placed([first.id, second.id, "x"]) == [
            PlacedJob(
                job=second.id,
                token=job.token,
                node="a",
                epoch=(await node_of(driver.store, "a")).epoch,
                amounts={"cpu": 3.0},
            )
        ]
        (allocation,) = await driver.store.nodes.allocations(AllocationFilter(job=second.id))
        assert (allocation.node, allocation.amounts, allocation.task) == ("a", {"cpu": 3.0}, "send_mail")
        assert (await node_of(driver.store, "a")).used == {"cpu": 3.0}
        assert ids((await driver.dispatch()).jobs) == [first.id]

    @case
    async def test_placements_over_a_quota_wait_and_a_gang_waits_as_a_whole(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        first, second, third = await driver.submit_many(3, tenant="acme")
        other = await driver.submit()
        partition = driver.schedulers.partition_of(QUEUE)
        quotas = Quotas(quotas={usage_name("acme"): Quota(tenant="acme", running=2)})

        async def place(*wanted: tuple[JobRecord, str]) -> list[str]:
            placements = [replace(_placement(job.id, cpu=0.5, gang=gang), tenant=job.tenant) for job, gang in wanted]
            batch = await driver.store.nodes.place(
                partition, await driver.epoch(partition), await _with_epochs(driver, placements), quotas=quotas
            )
            return [] if batch is None else ids(batch.jobs)

        assert await place((first, "")) == [first.id]
        assert await place((second, "g"), (third, "g"), (other, "")) == [other.id]
        assert sorted(await place((second, ""), (third, ""))) == [second.id]
        assert await driver.state(third) is JobState.QUEUED

    @case
    async def test_a_job_holds_no_resources_after_any_end_of_its_run(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        for kind in ("succeeded", "failed", "retry", "interrupted", "snoozed"):
            job = await driver.submit()
            batch = await _place(driver, [_placement(job.id)])
            assert batch is not None

            await driver.expect_accepted(batch.jobs[0], "started", started=await driver.store.now_ms())
            assert (await node_of(driver.store, "a")).used == {"cpu": 3.0}, kind
            await driver.expect_accepted(batch.jobs[0], kind, error=error("no"), delay=HOUR)

            assert (await node_of(driver.store, "a")).used == {}, kind
            if kind == "interrupted":
                await driver.expect_update(await driver.read(job), JobState.HELD)
        await driver.store.nodes.expire()
        assert await driver.store.nodes.allocations(AllocationFilter(is_open=True)) == []

    @case
    async def test_a_job_returned_undispatched_holds_no_resources(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        job = await driver.submit()
        batch = await _place(driver, [_placement(job.id)])
        assert batch is not None

        await driver.undispatch(*batch.jobs)

        assert await driver.state(job) is JobState.QUEUED
        assert (await node_of(driver.store, "a")).used == {}
        again = await _place(driver, [_placement(job.id)])
        assert again is not None
        assert again.jobs[0].token != batch.jobs[0].token

    @case
    async def test_a_job_that_no_longer_fits_is_not_placed(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        first, second, third = await driver.submit_many(3)

        batch = await _place(driver, [_placement(first.id), _placement(second.id), _placement(third.id, cpu=1.0)])

        assert batch is not None
        assert sorted(ids(batch.jobs)) == sorted([first.id, third.id])
        assert await driver.state(second) is JobState.QUEUED

    @case
    async def test_nothing_is_placed_on_a_closed_or_lost_node(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        job = await driver.submit()
        before = (await node_of(driver.store, "a")).epoch

        assert await _place(driver, [_placement(job.id, node="nobody")]) is None
        await driver.store.nodes.drain("a", drains=True)
        assert await _place(driver, [_placement(job.id)]) is None
        await driver.store.nodes.drain("a", drains=False)
        await driver.store.nodes.expire()
        assert await _place(driver, [_placement(job.id)]) is None
        await driver.store.nodes.report([_NODE])
        assert await _place(driver, [_placement(job.id, epoch=before)]) is None

        assert await _place(driver, [_placement(job.id, epoch=before + 1)]) is not None

    @case
    async def test_a_replaced_scheduler_places_nothing(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        job = await driver.submit()
        partition = driver.schedulers.partition_of(QUEUE)
        old = await driver.next_epoch(partition)
        await driver.next_epoch(partition)

        assert (
            await driver.store.nodes.place(partition, old, await _with_epochs(driver, [_placement(job.id)])) is None
        )

        assert await driver.state(job) is JobState.QUEUED
        assert (await node_of(driver.store, "a")).used == {}

    @case
    async def test_a_gang_is_placed_completely_or_not_at_all(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        first, second, third = await driver.submit_many(3)
        held = await driver.submit(held=True)

        assert await _place(driver, [_placement(first.id, gang="g"), _placement(second.id, gang="g")]) is None
        gone = [_placement(first.id, cpu=1.0, gang="g"), _placement(held.id, cpu=1.0, gang="g")]
        assert await _place(driver, gone) is None
        together = [
            _placement(first.id, cpu=1.0, gang="g"),
            _placement(second.id, cpu=2.0, gang="g"),
            _placement(third.id),
        ]
        batch = await _place(driver, together)

        assert batch is not None
        assert sorted(ids(batch.jobs)) == sorted([first.id, second.id])

    @case
    async def test_a_gang_with_an_expired_member_is_not_placed_and_that_member_ends(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        member, other = await driver.submit_many(2)
        expired = await driver.submit(expires=-1)
        gang = [_placement(each.id, cpu=1.0, gang="g") for each in (member, expired)]

        batch = await _place(driver, [*gang, _placement(other.id, cpu=1.0)])

        assert batch is not None
        assert (ids(batch.jobs), batch.expired) == ([other.id], 1)
        assert await driver.state(member) is JobState.QUEUED
        assert await driver.state(expired) is JobState.EXPIRED
        assert (await node_of(driver.store, "a")).used == {"cpu": 1.0}

    @case
    async def test_a_gang_with_a_missing_member_does_not_block_other_jobs(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        member, other = await driver.submit_many(2)
        held = await driver.submit(held=True)
        gang = [_placement(each.id, cpu=1.0, gang="g") for each in (member, held)]

        batch = await _place(driver, [*gang, _placement(other.id, cpu=1.0)])

        assert batch is not None
        assert ids(batch.jobs) == [other.id]
        assert await driver.state(member) is JobState.QUEUED

    @case
    async def test_allocations_on_a_lost_node_are_released(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        job = await driver.submit()
        batch = await _place(driver, [_placement(job.id)])
        assert batch is not None

        await driver.store.nodes.expire()

        assert (await node_of(driver.store, "a")).used == {}
        (placed,) = await driver.store.nodes.find_placed([job.id])
        assert placed.epoch != (await node_of(driver.store, "a")).epoch
        assert await driver.state(job) is JobState.DISPATCHED
        await driver.undispatch(*batch.jobs)
        assert await driver.store.nodes.find_placed([job.id]) == []

    @case
    async def test_an_expired_job_ends_instead_of_being_placed(self) -> None:
        driver = self.driver()
        await driver.store.nodes.report([_NODE])
        job = await driver.submit(expires=-1)

        assert await _place(driver, [_placement(job.id)]) is None

        assert await driver.state(job) is JobState.EXPIRED
        assert (await node_of(driver.store, "a")).used == {}

    @case
    async def test_expired_jobs_end_even_if_nothing_is_placed(self) -> None:
        driver = self.driver()
        expired, other = await driver.submit(expires=-1), await driver.submit(expires=HOUR)
        partition = driver.schedulers.partition_of(QUEUE)
        over = [expired.id, other.id, "x"]

        old = await driver.next_epoch(partition)
        epoch = await driver.next_epoch(partition)
        assert await driver.store.nodes.place(partition, old, [], over) is None
        assert await driver.state(expired) is JobState.QUEUED

        assert await driver.store.nodes.place(partition, epoch, [], over) is None
        assert await driver.state(expired) is JobState.EXPIRED
        assert await driver.state(other) is JobState.QUEUED

    @case
    async def test_concurrent_placements_never_exceed_capacity(self) -> None:
        driver, other = self.driver(), self.driver()
        await driver.store.nodes.report([_NODE])
        jobs = await driver.submit_many(8)
        partition = driver.schedulers.partition_of(QUEUE)
        epoch = await driver.epoch(partition)
        placements = await _with_epochs(driver, [_placement(job.id, cpu=1.0) for job in jobs])

        batches = await asyncio.gather(
            *(
                each.store.nodes.place(partition, epoch, [placement])
                for placement in placements
                for each in (driver, other)
            )
        )

        placed = [job.id for batch in batches if batch is not None for job in batch.jobs]
        assert len(placed) == len(set(placed)) == 4
        assert (await node_of(driver.store, "a")).used == {"cpu": 4.0}
