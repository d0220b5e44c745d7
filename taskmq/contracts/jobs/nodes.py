"""Host nodes in the store: who there is, what is allocated of them, and jobs that are placed.

    reported -> nodes -> place (waiting jobs: allocated and dispatched at once) -> the job ends, so its allocation
    does
                     allocate -> release (by hand, for others who use the same nodes)
    silent -> expire: lost, and all of its allocations are void

What is allocated of a node is never more than its capacity was when it was allocated, however many allocate at a
time.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from taskmq.contracts.jobs.dispatch import DispatchBatch, Lane, Pick
from taskmq.model.jobs.quotas import Quotas
from taskmq.model.nodes import Allocation, AllocationFilter, HostNode, JobNeeds, NewAllocation, NodeTold, Placement

__all__ = ["NodeStore", "PlacedJob", "UnplacedJob"]


class UnplacedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is ready and wants a node.

    Attributes:
        due: since when it is ready, ms since the epoch.
        expires: when its time is over, ms since the epoch.
        is_first: it was never dispatched.
        needs: None where it says nothing.
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
        """By what the jobs of a lane are in order."""
        return self.due, self.id


class PlacedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job under way, and where.

    Attributes:
        token: of its dispatch.
        epoch: of the node, as it was then; where the node has another one now, the job is lost.
        amounts: of the node that it has.
    """

    job: str
    token: int
    node: str
    epoch: int
    amounts: dict[str, float]


class NodeStore(Protocol):
    """Nodes and allocations. Names that no node has are unknown ones; every method raises `StoreUnavailable`."""

    async def tell(self, nodes: Sequence[NodeTold]) -> None:
        """These nodes are there, with what they say of themselves; one that was lost is not any more.

        Of one that says less than before, what is allocated beyond its capacity stays allocated.
        """
        ...

    async def nodes(self) -> list[HostNode]:
        """All nodes that are known, by name, with what is allocated of them."""
        ...

    async def drain(self, name: str, *, drains: bool) -> HostNode | None:
        """Have the node get nothing more, or something again; None where there is none."""
        ...

    async def say_busy(self, name: str, *, is_busy: bool) -> HostNode | None:
        """What its owner says, which is a heartbeat; None where there is none."""
        ...

    async def remove(self, name: str) -> bool:
        """Forget the node and end its allocations; whether it was there."""
        ...

    async def expire(self) -> list[str]:
        """Those that are lost from now on, because they were silent for too long. What was allocated there ends."""
        ...

    async def allocate(self, new: NewAllocation) -> Allocation | None:
        """Allocate it; None where there is no open node with so much free. The same id again is the same allocation.

        Raises:
            InvalidOption: the id is that of an allocation of something else.
        """
        ...

    async def release(self, allocation: str) -> Allocation | None:
        """End one that was made by hand; None where there is none. One that has ended stays as it is."""
        ...

    async def allocations(
        self, which: AllocationFilter, *, after: str | None = None, limit: int = 50
    ) -> list[Allocation]:
        """Up to `limit` of those, the newest first, from behind the one with the id `after`."""
        ...

    async def waiting(
        self, picks: Sequence[Pick], *, behind: Mapping[Lane, tuple[int, str]] | None = None
    ) -> list[UnplacedJob]:
        """The first jobs of these lanes, as many of each as the pick says, in the order of the picks.

        Args:
            behind: of a lane the place of a job (`UnplacedJob.place`): the first ones behind it are meant.
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
        """Allocate and dispatch these jobs, all in one transaction; None where none was to be had.

        Each gets its amounts on its node, if that is open, has the epoch that was seen and so much is free; what was
        changed or taken meanwhile is left out, and of a gang all where one is. `DispatchedJob.node` says where each
        goes. `partition` and `epoch` are the scheduler's, as in `DispatchStore.dispatch`; of the placements, and
        of the jobs named by `over`, those that have expired end.

        Args:
            quotas: those that let jobs wait, see `DispatchStore.dispatch_within`: what has to wait is left out.
        """
        ...

    async def placed(self, jobs: Sequence[str]) -> list[PlacedJob]:
        """Of these jobs those under way that were placed by their present tokens; also where the node is lost."""
        ...
