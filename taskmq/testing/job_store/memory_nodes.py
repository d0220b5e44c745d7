"""The nodes of a job store in this process."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchBatch, JobRecord, Lane, Pick, PlacedJob, UnplacedJob, partition_key
from taskmq.model.jobs.quotas import Quotas, RunBook
from taskmq.model.nodes import (
    Allocation,
    AllocationFilter,
    HostNode,
    NewAllocation,
    NodeTold,
    Placement,
    startable,
    together,
)
from taskmq.model.states import UNDERWAY, JobState
from taskmq.testing.job_store.model import JobModel

__all__ = ["MemoryNodes"]


class MemoryNodes:
    """A `NodeStore` over a `JobModel`.

    Args:
        look: the model, at the time that it is.
    """

    def __init__(self, look: Callable[[], JobModel]) -> None:
        self._look = look

    async def tell(self, nodes: Sequence[NodeTold]) -> None:
        model = self._look()
        model.nodes.tell(nodes, now=model.now)

    async def nodes(self) -> list[HostNode]:
        model = self._look()
        return model.nodes.nodes(_under_way(model), now=model.now)

    async def drain(self, name: str, *, drains: bool) -> HostNode | None:
        self._look().nodes.change(name, is_draining=drains)
        return await self._find(name)

    async def say_busy(self, name: str, *, is_busy: bool) -> HostNode | None:
        model = self._look()
        model.nodes.change(name, is_busy=is_busy, heartbeat=model.now, is_lost=False)
        return await self._find(name)

    async def remove(self, name: str) -> bool:
        model = self._look()
        return model.nodes.remove(name, now=model.now)

    async def expire(self) -> list[str]:
        model = self._look()
        return model.nodes.expire(_under_way(model), now=model.now)

    async def allocate(self, new: NewAllocation) -> Allocation | None:
        model = self._look()
        return model.nodes.allocate(new, _under_way(model), now=model.now)

    async def release(self, allocation: str) -> Allocation | None:
        model = self._look()
        return model.nodes.release(allocation, now=model.now)

    async def allocations(
        self, which: AllocationFilter, *, after: str | None = None, limit: int = 50
    ) -> list[Allocation]:
        return self._look().nodes.allocations(which, after=after, limit=limit)

    async def waiting(
        self, picks: Sequence[Pick], *, behind: Mapping[Lane, tuple[int, str]] | None = None
    ) -> list[UnplacedJob]:
        model, places = self._look(), behind or {}
        return [
            UnplacedJob(
                id=job.id,
                tenant=job.tenant,
                queue=job.queue,
                priority=job.priority,
                task=job.task,
                due=job.due,
                is_first=not job.token,
                expires=job.expires,
                needs=None if job.detail is None else job.detail.needs,
            )
            for pick in picks
            for job in _behind(model.ready(pick.lane), places.get(pick.lane))[: pick.count]
        ]

    async def place(
        self,
        partition: int,
        epoch: int,
        placements: Sequence[Placement],
        over: Sequence[str] = (),
        *,
        quotas: Quotas | None = None,
    ) -> DispatchBatch | None:
        model = self._look()
        if not model.leases.has(partition_key(partition), epoch):
            return None
        accepted = {each.job: each for each in model.nodes.reserve(placements, _under_way(model), now=model.now)}
        there = [model.jobs[job] for job in {**accepted, **dict.fromkeys(over)} if job in model.jobs]
        there = [job for job in there if job.state is JobState.QUEUED]
        expired = [job for job in there if job.expires is not None and job.expires <= model.now]
        chosen = startable(accepted, {job.id for job in there} - {job.id for job in expired})
        chosen = _admitted(model, quotas or Quotas(), chosen)
        batch = model.hand_out(partition, epoch, [*(model.jobs[job] for job in chosen), *expired])
        if batch is None:
            return None
        for job in batch.jobs:
            model.nodes.take(accepted[job.id], job.token, now=model.now)
        return replace(batch, jobs=[replace(job, node=accepted[job.id].node) for job in batch.jobs])

    async def placed(self, jobs: Sequence[str]) -> list[PlacedJob]:
        model = self._look()
        return [
            PlacedJob(job=job, token=token, node=node, epoch=epoch, amounts=amounts)
            for job in jobs
            for node, epoch, token, amounts in model.nodes.placed(job, _under_way(model))
        ]

    async def _find(self, name: str) -> HostNode | None:
        return next((node for node in await self.nodes() if node.name == name), None)


def _admitted(model: JobModel, quotas: Quotas, placements: dict[str, Placement]) -> dict[str, Placement]:
    running = Counter(_owner_of(job) for job in model.jobs.values() if job.state in UNDERWAY)
    book = RunBook(quotas, usage=model.quota_usage, running=running, now=model.now)
    units = together(placements)
    admitted = [unit for unit in units if book.admit_all(_owner_of(model.jobs[job]) for job in unit)]
    model.quota_usage |= book.changed
    return {job: placements[job] for unit in admitted for job in unit}


def _owner_of(job: JobRecord) -> tuple[str, str]:
    return job.tenant, "" if job.detail is None else job.detail.owner


def _behind(jobs: list[JobRecord], place: tuple[int, str] | None) -> list[JobRecord]:
    return jobs if place is None else [job for job in jobs if (job.due, job.id) > place]


def _under_way(model: JobModel) -> Callable[[str, int], bool]:
    def is_under_way(job_id: str, token: int) -> bool:
        job = model.jobs.get(job_id)
        return job is not None and job.state in UNDERWAY and job.token == token

    return is_under_way
