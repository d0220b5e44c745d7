"""Nodes of a database."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from taskmq.contracts.jobs import DispatchBatch, Lane, Pick, PlacedJob, UnplacedJob
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.nodes import Allocation, AllocationFilter, HostNode, NewAllocation, NodeTold, Placement
from taskmq.model.telemetry.worker_status import WorkerStatus
from taskmq_sql.nodes import allocations, registry
from taskmq_sql.steps import Runner, Steps, clock

Reserve = Callable[[int], Steps[list[Placement]]]


class PlacementQueries(Protocol):
    """Queries on the jobs of the same database; the tables differ between databases."""

    async def waiting(self, picks: Sequence[Pick], behind: Mapping[Lane, tuple[int, str]]) -> list[UnplacedJob]:
        """See `NodeStore.waiting`."""
        ...

    async def place(
        self, partition: int, epoch: int, reserve: Reserve, over: Sequence[str], quotas: Quotas
    ) -> DispatchBatch | None:
        """See `NodeStore.place`; `reserve` selects the jobs, at the start of the transaction."""
        ...


class SqlNodes:
    """A `NodeStore` in the database's tables."""

    def __init__(self, runner: Runner, jobs: PlacementQueries) -> None:
        self._runner = runner
        self._jobs = jobs

    async def report(self, nodes: Sequence[NodeTold]) -> None:
        if nodes:
            await self._runner.write(partial(registry.report, told=nodes))

    async def nodes(self) -> list[HostNode]:
        return await self._runner.read(self._nodes)

    async def drain(self, name: str, *, drains: bool) -> HostNode | None:
        work = partial(registry.drain, name=name, drains=drains)
        return await self._runner.write(work)

    async def set_busy(self, name: str, *, is_busy: bool) -> HostNode | None:
        work = partial(registry.set_busy, name=name, is_busy=is_busy)
        return await self._runner.write(work)

    async def remove(self, name: str) -> bool:
        return await self._runner.write(partial(registry.remove, name=name))

    async def expire(self) -> list[str]:
        return await self._runner.write(registry.expire)

    async def report_workers(self, workers: Sequence[WorkerStatus]) -> None:
        if workers:
            await self._runner.write(partial(registry.report_workers, statuses=workers), is_lasting=False)

    async def forget_workers(self, workers: Sequence[WorkerStatus]) -> None:
        if workers:
            await self._runner.write(partial(registry.forget_workers, statuses=workers), is_lasting=False)

    async def workers(self) -> list[WorkerStatus]:
        return await self._runner.read(registry.workers)

    async def allocate(self, new: NewAllocation) -> Allocation | None:
        return await self._runner.write(partial(allocations.allocate, new=new, find=registry.nodes))

    async def release(self, allocation: str) -> Allocation | None:
        return await self._runner.write(partial(allocations.release, allocation=allocation))

    async def allocations(
        self, which: AllocationFilter, *, after: str | None = None, limit: int = 50
    ) -> list[Allocation]:
        return await self._runner.read(partial(allocations.allocations, which=which, after=after, limit=limit))

    async def waiting(
        self, picks: Sequence[Pick], *, behind: Mapping[Lane, tuple[int, str]] | None = None
    ) -> list[UnplacedJob]:
        return await self._jobs.waiting(picks, behind or {})

    async def place(
        self,
        partition: int,
        epoch: int,
        placements: Sequence[Placement],
        over: Sequence[str] = (),
        *,
        quotas: Quotas | None = None,
    ) -> DispatchBatch | None:
        if not placements and not over:
            return None
        return await self._jobs.place(
            partition,
            epoch,
            partial(allocations.reserve, placements=placements, find=registry.nodes),
            over,
            quotas or Quotas(),
        )

    async def find_placed(self, jobs: Sequence[str]) -> list[PlacedJob]:
        rows = await self._runner.read(partial(allocations.placed_rows, jobs=jobs))
        return [
            PlacedJob(job=job, token=token, node=node, epoch=epoch, amounts=amounts)
            for job, token, node, epoch, amounts in rows
        ]

    def _nodes(self) -> Steps[list[HostNode]]:
        return (yield from registry.nodes((yield from clock())))
