"""Host nodes in the store: their registration, their allocations, and placed jobs.

    reported -> nodes -> place (waiting jobs: allocated and dispatched together) -> the job ends, and so does this
                     allocate -> release (manually, for other users of the same nodes)
    silent -> expire: lost, and all of its allocations are void
    report_workers -> workers: the last status of each worker process, on nodes and on other hosts

Allocations of a node never exceed its capacity at the time of the allocation, however many callers allocate
concurrently.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from taskmq.contracts.jobs.dispatch.dispatched_jobs import DispatchBatch
from taskmq.contracts.jobs.dispatch.lanes import Lane, Pick
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.nodes import Allocation, AllocationFilter, HostNode, JobNeeds, NewAllocation, NodeTold, Placement
from taskmq.model.telemetry.worker_status import WorkerStatus


class UnplacedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A ready job that requires a node.

    Attributes:
        due: when it became ready, ms since the epoch.
        expires: its expiry, ms since the epoch.
        is_first: whether it was never dispatched.
        needs: None if it has no requirements.
    """

    id: str
    tenant: str
    queue: str
    priority: int
    task: str
    due: int
    is_first: bool
    expires: int | None = None
    needs: JobNeeds | None = None

    @property
    def lane(self) -> Lane:
        return Lane(self.queue, self.priority, self.tenant)

    @property
    def place(self) -> tuple[int, str]:
        """Sort key of jobs within a lane."""
        return self.due, self.id


class PlacedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job in flight, and its placement.

    Attributes:
        token: of its dispatch.
        epoch: of the node at that time; if the node has another epoch now, the job is lost.
        amounts: amounts that it has of the node.
    """

    job: str
    token: int
    node: str
    epoch: int
    amounts: dict[str, float]


class NodeStore(Protocol):
    """Nodes and allocations. Names without a node are unknown; every method raises `StoreUnavailable`."""

    async def report(self, nodes: Sequence[NodeTold]) -> None:
        """Store reports of nodes; a node that was lost is available again.

        If a node reports less capacity than before, allocations beyond it stay.
        """
        ...

    async def nodes(self) -> list[HostNode]:
        """Return all known nodes by name, with their allocated amounts."""
        ...

    async def drain(self, name: str, *, drains: bool) -> HostNode | None:
        """Drain the node, or stop draining it; None if there is no such node."""
        ...

    async def set_busy(self, name: str, *, is_busy: bool) -> HostNode | None:
        """Store its owner's report that it is busy or not, which is a heartbeat; None if there is no such node."""
        ...

    async def remove(self, name: str) -> bool:
        """Delete the node and end its allocations; return whether it existed."""
        ...

    async def expire(self) -> list[str]:
        """Mark nodes as lost that were silent for too long, and end their allocations; return their names."""
        ...

    async def report_workers(self, workers: Sequence[WorkerStatus]) -> None:
        """Store the last status of worker processes. It replaces those of the same name, host and process.

        A crash of the database may lose what was stored in its last second.
        """
        ...

    async def forget_workers(self, workers: Sequence[WorkerStatus]) -> None:
        """Delete the statuses of worker processes that stopped in order."""
        ...

    async def workers(self) -> list[WorkerStatus]:
        """Return the last status of each worker process. `at` is when the store got it, by the store's clock.

        `expire` deletes statuses that were not replaced for ten minutes.
        """
        ...

    async def allocate(self, new: NewAllocation) -> Allocation | None:
        """Allocate amounts; None if no open node has enough free. The same id again returns the same allocation.

        Raises:
            InvalidOption: the id belongs to a different allocation.
        """
        ...

    async def release(self, allocation: str) -> Allocation | None:
        """End a manual allocation; None if there is none. An ended one stays unchanged."""
        ...

    async def allocations(
        self, which: AllocationFilter, *, after: str | None = None, limit: int = 50
    ) -> list[Allocation]:
        """Return up to `limit` matching allocations, the newest first, after the one with the id `after`."""
        ...

    async def waiting(
        self, picks: Sequence[Pick], *, behind: Mapping[Lane, tuple[int, str]] | None = None
    ) -> list[UnplacedJob]:
        """Return the first jobs of these lanes, as many as each pick says, in the order of the picks.

        Args:
            behind: sort key of a job by lane (`UnplacedJob.place`): return the first jobs after it.
        """
        ...

    async def place(
        self,
        partition: int,
        epoch: int,
        placements: Sequence[Placement],
        over: Sequence[str] = (),
        *,
        quotas: Quotas | None = None,
    ) -> DispatchBatch | None:
        """Allocate and dispatch these jobs in one transaction; None if there were none.

        Each gets its amounts on its node, if the node is open, has the seen epoch and enough free. Jobs that were
        changed or dispatched meanwhile are left out, and with them their whole gang. `DispatchedJob.node` is the node
        of each. `partition` and `epoch` are the scheduler's, as in `DispatchStore.dispatch`. Expired jobs, among the
        placements and those named by `over`, end.

        Args:
            quotas: quotas that hold jobs back, see `DispatchStore.dispatch_within`: jobs that must wait are left out.
        """
        ...

    async def find_placed(self, jobs: Sequence[str]) -> list[PlacedJob]:
        """Return those of these jobs in flight that were placed with their present tokens, even on a lost node."""
        ...
