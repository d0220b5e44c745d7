"""Host nodes and allocations over dictionaries; the caller says what time it is, and which jobs are under way."""

import random
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from taskmq.errors import InvalidOption
from taskmq.model.envelope import new_job_id
from taskmq.model.nodes import (
    Allocation,
    AllocationFilter,
    HostNode,
    NewAllocation,
    NodeTold,
    Placement,
    added,
    best_fit,
    has_labels,
    reservable,
)

__all__ = ["NodeModel"]

IsUnderWay = Callable[[str, int], bool]


class _Entry(msgspec.Struct):
    allocation: Allocation
    epoch: int
    token: int | None = None


class NodeModel:
    """What `NodeStore` promises of nodes and allocations. Instants are ms since the epoch."""

    def __init__(self) -> None:
        self._nodes: dict[str, HostNode] = {}
        self._entries: dict[str, _Entry] = {}
        self._dice = random.Random(0)

    def tell(self, told: Sequence[NodeTold], *, now: int) -> None:
        for one in told:
            known = self._nodes.get(one.name) or HostNode(id=self._id(now), told=one, registered=now, epoch=now)
            self._nodes[one.name] = replace(known, told=one, heartbeat=now, is_lost=False)

    def nodes(self, under_way: IsUnderWay, *, now: int) -> list[HostNode]:
        used: dict[str, dict[str, float]] = {}
        for entry in self._entries.values():
            if self._is_open(entry, under_way, now):
                node = entry.allocation.node
                used[node] = added(used.get(node, {}), entry.allocation.amounts)
        return [replace(node, used=used.get(name, {})) for name, node in sorted(self._nodes.items())]

    def change(self, name: str, **fields: object) -> None:
        """Set fields of a node, if it is there."""
        if name in self._nodes:
            self._nodes[name] = replace(self._nodes[name], **fields)

    def remove(self, name: str, *, now: int) -> bool:
        self._close(name, now)
        return self._nodes.pop(name, None) is not None

    def expire(self, under_way: IsUnderWay, *, now: int) -> list[str]:
        lost = [
            name
            for name, node in sorted(self._nodes.items())
            if not node.is_lost and node.told.lost_after is not None and node.heartbeat + node.told.lost_after <= now
        ]
        for name in lost:
            self.change(name, is_lost=True, epoch=self._nodes[name].epoch + 1)
            self._close(name, now)
        for entry in self._entries.values():
            one = entry.allocation
            if one.ended is None and not self._is_open(entry, under_way, now):
                is_over = one.until is not None and one.until <= now
                entry.allocation = replace(one, ended=one.until if is_over else now)
        return lost

    def allocate(self, new: NewAllocation, under_way: IsUnderWay, *, now: int) -> Allocation | None:
        if (known := self._entries.get(new.id)) is not None:
            found = known.allocation
            if (found.job, found.tenant, found.amounts) != (new.job, new.tenant, new.amounts):
                raise InvalidOption(f"allocation {new.id} is one of something else: choose another id")
            return found
        wanted = [
            node
            for node in self.nodes(under_way, now=now)
            if new.node in (None, node.name) and has_labels(node, new.labels)
        ]
        if (best := best_fit(new.amounts, wanted)) is None:
            return None
        made = Allocation(
            id=new.id,
            node=best.name,
            job=new.job,
            tenant=new.tenant,
            amounts=new.amounts,
            since=now,
            until=None if new.ttl is None else now + new.ttl,
        )
        self._entries[new.id] = _Entry(made, best.epoch)
        return made

    def release(self, allocation: str, *, now: int) -> Allocation | None:
        entry = self._entries.get(allocation)
        if entry is None or entry.token is not None:
            return None
        if entry.allocation.ended is None:
            entry.allocation = replace(entry.allocation, ended=now)
        return entry.allocation

    def allocations(self, which: AllocationFilter, *, after: str | None, limit: int) -> list[Allocation]:
        found = sorted((entry.allocation for entry in self._entries.values()), key=_by_id, reverse=True)
        return [one for one in found if _fits(which, one) and (after is None or one.id < after)][:limit]

    def forget(self, which: Callable[[Allocation], bool]) -> None:
        """Drop these, but of those by hand the open ones."""
        self._entries = {
            name: entry
            for name, entry in self._entries.items()
            if not which(entry.allocation) or (entry.token is None and entry.allocation.ended is None)
        }

    def reserve(self, placements: Sequence[Placement], under_way: IsUnderWay, *, now: int) -> list[Placement]:
        """Of these the ones that can be."""
        return reservable(placements, self.nodes(under_way, now=now))

    def take(self, placement: Placement, token: int, *, now: int) -> None:
        """A job has got it."""
        made = Allocation(
            id=self._id(now),
            node=placement.node,
            job=placement.job,
            tenant=placement.tenant,
            task=placement.task,
            amounts=placement.amounts,
            since=now,
        )
        self._entries[made.id] = _Entry(made, placement.epoch, token)

    def placed(self, job: str, under_way: IsUnderWay) -> list[tuple[str, int, int, dict[str, float]]]:
        """Node, epoch, token and amounts of where a job of the store was placed by its present token."""
        return [
            (entry.allocation.node, entry.epoch, entry.token, entry.allocation.amounts)
            for entry in self._entries.values()
            if entry.allocation.job == job and entry.token is not None and under_way(job, entry.token)
        ]

    def _is_open(self, entry: _Entry, under_way: IsUnderWay, now: int) -> bool:
        one = entry.allocation
        if one.ended is not None or (one.until is not None and one.until <= now):
            return False
        return entry.token is None or under_way(one.job, entry.token)

    def _close(self, name: str, now: int) -> None:
        for entry in self._entries.values():
            if entry.allocation.node == name and entry.allocation.ended is None:
                entry.allocation = replace(entry.allocation, ended=now)

    def _id(self, now: int) -> str:
        return new_job_id(now, self._dice.randbytes(10))


def _fits(which: AllocationFilter, one: Allocation) -> bool:
    return (
        which.node in (None, one.node)
        and which.job in (None, one.job)
        and which.tenant in (None, one.tenant)
        and (which.until is None or one.since < which.until)
        and (which.since is None or one.ended is None or one.ended > which.since)
        and not (which.is_open and one.ended is not None)
    )


def _by_id(one: Allocation) -> str:
    return one.id
