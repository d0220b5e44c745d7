"""Placement of one partition's jobs in queues with `placed=True`.

    picks (in turn order) -> the first jobs of these lanes, and all nodes, as the store has them;
                                if some did not fit, also jobs behind them, further back with each round
      -> plan (pure) -> place: allocated and dispatched in one transaction -> published to the node's own queue

`Placements` keeps which job has what of which node until it leaves; it is read from the store after a take-over.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchBatch, JobStore, Lane, Pick, UnplacedJob
from taskmq.model.nodes import JobNeeds, capacity_of
from taskmq.model.resources import Amounts
from taskmq.model.topology import node_queue
from taskmq.scheduler.partition import PartitionState, Reservation
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.placement import Candidate, plan_placements

_NOTHING: Final = JobNeeds()
# Behind the first jobs of a lane twice as many are read, each round starting half of them further back. A gang that
# spans the end of one round is then complete in the next.
_BEHIND: Final = 2


class Placer:
    """Selection of nodes for the jobs of one partition.

    A node whose queue the broker refuses gets no jobs for now.

    Attributes:
        capacity: total capacity of all open nodes, as last read.
    """

    def __init__(self, store: JobStore, lease: HeldLease, state: PartitionState) -> None:
        self._store = store
        self._lease = lease
        self._state = state
        self.capacity: Amounts = {}
        # For lanes whose first jobs do not all fit: the job after which the next round continues.
        self._behind: dict[Lane, tuple[int, str]] = {}
        # Queues and tenants with a job that had a node, but was held back by a quota.
        self._waiting: set[tuple[str, str]] = set()

    async def place(self, picks: Sequence[Pick]) -> DispatchBatch | None:
        """Dispatch the jobs of these lanes that fit on a node, and end expired ones. Returns None if nothing fits.

        No more jobs of a tenant and queue are dispatched than were picked, except for a gang, which is dispatched as
        a whole. Jobs behind those that fit nowhere get a turn too: each round continues where the last one stopped,
        up to the end of the lane, and then starts again. A tenant held back by a quota skips the next round. No pool
        exceeds its cap of a resource.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        state, placements = self._state, self._state.placements
        quotas = state.quotas
        placements.follow(state.shares.pools)
        looked_at, first = await self._read_first(picks)
        if not first:
            self._behind.clear()
            return None
        now = asyncio.get_running_loop().time()
        nodes = [
            node
            for node in await self._store.nodes.nodes()
            if not state.pauses.is_paused(node_queue(node.name), now=now)
        ]
        self.capacity = capacity_of(nodes)
        waiting = [*first, *(await self._read_further(looked_at, first))]
        now, now_ms = asyncio.get_running_loop().time(), await self._store.now_ms()
        over = [one.id for one in waiting if one.expires is not None and one.expires <= now_ms]
        gone = set(over)
        queues = {one.id: one.queue for one in waiting}
        candidates = [self._candidate(one, now_ms) for one in waiting if one.id not in gone]
        most: Counter[tuple[str, str]] = Counter()
        for pick in picks:
            most[pick.lane.queue, pick.lane.tenant] += pick.count
        for owner in self._waiting:
            most[owner] = 0
        self._waiting = set()
        plan = plan_placements(
            candidates,
            nodes,
            list(placements.runs()),
            now=now,
            held=placements.held_for,
            most=most,
            caps=placements.caps,
        )
        placements.held_for = plan.held
        if placements.caps is not None:
            # Planned jobs count only once they are dispatched.
            for each in plan.placements:
                placements.caps.give(queues[each.job], each.tenant, each.amounts)
        self._advance(looked_at, waiting, {each.job for each in plan.placements} | gone)
        if not plan.placements and not over:
            return None
        batch = await self._store.nodes.place(
            self._lease.partition, self._lease.epoch, plan.placements, over, quotas=quotas
        )
        held_back = quotas.held_back()
        dispatched: set[str] = set() if batch is None else {job.id for job in batch.jobs}
        self._waiting = {
            (queues[each.job], each.tenant)
            for each in plan.placements
            if each.job not in dispatched and each.tenant in held_back
        }
        placements.plan({each.job: Reservation(each.node, each.epoch, each.amounts) for each in plan.placements})
        return batch

    async def _read_first(self, picks: Sequence[Pick]) -> tuple[Sequence[Pick], Sequence[UnplacedJob]]:
        """Read the first jobs of these lanes, including a whole gang at the head. Returns the picks and the jobs."""
        first = await self._store.nodes.waiting(picks)
        counts = {pick.lane: pick.count for pick in picks}
        gangs: dict[Lane, int] = {}
        for one in first:
            size = 0 if one.needs is None else one.needs.gang_size
            if size > max(counts[one.lane], gangs.get(one.lane, 0)):
                gangs[one.lane] = size
        if not gangs:
            return picks, first
        picks = [Pick(pick.lane, gangs.get(pick.lane, pick.count)) for pick in picks]
        return picks, await self._store.nodes.waiting(picks)

    async def _read_further(self, picks: Sequence[Pick], first: Sequence[UnplacedJob]) -> list[UnplacedJob]:
        behind = {pick.lane: place for pick in picks if (place := self._behind.get(pick.lane)) is not None}
        if not behind:
            return []
        for one in first:
            # If jobs have left since the last round, the first ones reach further back than it did.
            if one.lane in behind:
                behind[one.lane] = max(behind[one.lane], one.place)
        wanted = [Pick(pick.lane, _BEHIND * pick.count) for pick in picks if pick.lane in behind]
        return await self._store.nodes.waiting(wanted, behind=behind)

    def _advance(self, picks: Sequence[Pick], waiting: Sequence[UnplacedJob], gone: set[str]) -> None:
        """Remember where the next round continues, in lanes that still have jobs."""
        lanes: defaultdict[Lane, list[UnplacedJob]] = defaultdict(list)
        for one in waiting:
            lanes[one.lane].append(one)
        before, self._behind = self._behind, {}
        for pick in picks:
            jobs = lanes[pick.lane]
            first, behind = jobs[: pick.count], jobs[pick.count :]
            if len(first) < pick.count or all(one.id in gone for one in first):
                continue
            # At the end of the lane it starts again after the first jobs.
            is_whole = pick.lane in before and len(behind) == _BEHIND * pick.count
            self._behind[pick.lane] = behind[pick.count - 1].place if is_whole else first[-1].place

    async def locate(self, batch: DispatchBatch) -> DispatchBatch:
        """Return a batch of an earlier holder, with the nodes of its jobs.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        tokens = {job.id: job.token for job in batch.jobs}
        found = {
            each.job: each
            for each in await self._store.nodes.find_placed(list(tokens))
            if each.token == tokens.get(each.job)
        }
        self._state.placements.recall(
            {job: Reservation(each.node, each.epoch, each.amounts) for job, each in found.items()}
        )
        nodes = {job: each.node for job, each in found.items()}
        return replace(batch, jobs=[replace(job, node=nodes.get(job.id, "")) for job in batch.jobs])

    async def find_lost(self) -> set[str]:
        """Return the jobs in flight whose node is lost or unknown.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        placements = self._state.placements
        if not placements:
            return set()
        return placements.find_lost({node.name: node for node in await self._store.nodes.nodes()})

    def _candidate(self, one: UnplacedJob, now_ms: int) -> Candidate:
        return Candidate(
            job=one.id,
            tenant=one.tenant,
            queue=one.queue,
            task=one.task,
            needs=one.needs or _NOTHING,
            waited=max(now_ms - one.due, 0) / 1000,
            seconds=self._state.placements.expected_seconds(one.task, one.tenant),
            is_first=one.is_first,
        )
