"""Placements of one partition's jobs in flight: their nodes, and the amounts they use there.

Pure: times are seconds of the caller's clock. `Placer` chooses the nodes and dispatches.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from taskmq.contracts.jobs import DispatchBatch, JobRecord, Lane
from taskmq.model.jobs.pools import TenantPool
from taskmq.model.nodes import HostNode
from taskmq.model.topology import node_queue
from taskmq.scheduler.fairness import Caps
from taskmq.scheduler.fairness.costs import RunTimes
from taskmq.scheduler.placement import NodeRun


class Reservation(NamedTuple):
    """Amounts of a node, as they were read or planned, for one job."""

    node: str
    epoch: int
    amounts: dict[str, float]


class _Placed(NamedTuple):
    """A job in flight on a node; `began` is when it was dispatched."""

    node: str
    epoch: int
    task: str
    queue: str
    tenant: str
    amounts: dict[str, float]
    began: float


class Placements:
    """Jobs in flight on nodes, the amounts they use, and when they are expected to leave.

    Attributes:
        caps: caps and usage of pools; None if no pool has a cap.
        held_for: the job that a node is held free for; empty if there is none.
    """

    def __init__(self) -> None:
        self.caps: Caps | None = None
        self.held_for = ""
        self._pools: Mapping[str, TenantPool] = {}
        self._placed: dict[str, _Placed] = {}
        self._planned: dict[str, Reservation] = {}
        self._times = RunTimes()
        # When runs that were asked to leave will have left.
        self._leaving: dict[str, float] = {}

    def __len__(self) -> int:
        """Return the number of placed jobs in flight."""
        return len(self._placed)

    def follow(self, pools: Mapping[str, TenantPool]) -> None:
        """Apply the caps of these pools from now on."""
        if pools is self._pools:
            return
        self._pools = pools
        self.caps = Caps(pools) if any(pool.max for pool in pools.values()) else None
        if self.caps is not None:
            for each in self._placed.values():
                self.caps.take(each.queue, each.tenant, each.amounts)

    def plan(self, reservations: Mapping[str, Reservation]) -> None:
        """Replace the planned reservations, by job id; `keep` makes them count."""
        self._planned = dict(reservations)

    def recall(self, reservations: Mapping[str, Reservation]) -> None:
        """Add reservations of an earlier holder, by job id; `keep` makes them count."""
        self._planned |= reservations

    def keep(self, batch: DispatchBatch, *, now: float) -> None:
        """Count the planned reservations of a dispatched batch."""
        for job in batch.jobs:
            if (planned := self._planned.pop(job.id, None)) is None:
                continue
            self._placed[job.id] = _Placed(
                planned.node, planned.epoch, job.task, job.queue, job.tenant, planned.amounts, now
            )
            if self.caps is not None:
                self.caps.take(job.queue, job.tenant, planned.amounts)

    def leave(self, job_id: str, seconds: float | None) -> bool:
        """Free the amounts of a job that has left. Returns whether it was placed.

        Args:
            seconds: how long it ran; 0: not at all; None: unknown.
        """
        self._leaving.pop(job_id, None)
        placed = self._placed.pop(job_id, None)
        if placed is None:
            return False
        if self.caps is not None:
            self.caps.give(placed.queue, placed.tenant, placed.amounts)
        if seconds:
            self._times.record_run(placed.task, _lane(placed.tenant), seconds)
        return True

    def find(self, job_id: str) -> tuple[str, Mapping[str, float]] | None:
        """Return the node of a job in flight and the amounts it uses; None if it is not placed."""
        placed = self._placed.get(job_id)
        return None if placed is None else (placed.node, placed.amounts)

    def queue_of(self, record: JobRecord) -> str:
        """Return the queue whose `.jobs` queue has the job's message."""
        placed = self._placed.get(record.id)
        return record.queue if placed is None else node_queue(placed.node)

    def make_room(self, job_id: str, leaving: Iterable[str], *, until: float) -> None:
        """Hold a node for a waiting job: these runs were asked to leave it, and will have left by `until`."""
        self.held_for = job_id
        for each in leaving:
            if each in self._placed:
                self._leaving[each] = until

    def find_lost(self, nodes: Mapping[str, HostNode]) -> set[str]:
        """Return the jobs in flight whose node is missing here, or has a new epoch."""
        return {
            job
            for job, placed in self._placed.items()
            if (node := nodes.get(placed.node)) is None or node.epoch != placed.epoch
        }

    def expected_seconds(self, task: str, tenant: str) -> float:
        """Return the expected duration of a run of the task in seconds."""
        return self._times.expect(task, _lane(tenant))

    def runs(self) -> Iterable[NodeRun]:
        """Yield the amounts that jobs in flight use, and when they are expected to leave."""
        for job_id, placed in self._placed.items():
            expected = placed.began + self.expected_seconds(placed.task, placed.tenant)
            ends = min(expected, self._leaving.get(job_id, inf))
            yield NodeRun(placed.node, placed.amounts, ends)


def _lane(tenant: str) -> Lane:
    return Lane("", 0, tenant)
