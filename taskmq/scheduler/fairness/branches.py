"""The tree in which pools of one queue take turns. Pure.

    queue -> priority class -> pool -> ... -> the jobs of one tenant and class, by lanes

A branch serves the child with the least key. By turns, that is the child with the least *virtual time*: the cost of
its jobs divided by its weight. A branch that had no jobs for a while resumes at the virtual time of the others
(start-time fair queueing), so it cannot save up turns. By heads, it is the child with the first job in order.


The lead and the lag of a branch are bounded, even if expected run times were wrong. It is ahead of the clock by at
most its jobs in flight or its longest single run, and behind by at most its jobs in flight and the charge for the run
that has just ended. So no branch pays later for capacity that others left unused, and a branch with nothing in flight
is served after every other one has had a turn of bounded size.
"""

from math import inf
from typing import Final

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import Amounts
from taskmq.scheduler.fairness.accounts import Account
from taskmq.scheduler.fairness.order import Key, Order

Clocks = tuple[float, ...]
"""The virtual times above a branch, its parent's first."""

# Within a tenant's jobs of one class, each priority gets four times the turns of the one below it.
_EACH_PRIORITY: Final = 4.0
# Number of a lane's jobs that are assumed to be as old as its first one, the only one that is known.
_AS_OLD: Final = 8


class Branch:
    """A pool in one class, a class, or the queue itself.

    Args:
        by_heads: whether its children are ordered by their first jobs.
        rank: rank of its class, 0 for the highest.

    Attributes:
        virtual: virtual time: the cost of its jobs divided by its weight.
        flying: charges for its jobs in flight.
        paid: largest virtual time reached by one run alone.
        clock: virtual time of the child served last.
        children: children with jobs that may be picked.
    """

    __slots__ = (
        "account", "by_heads", "by_rank", "children", "clock", "flying", "paid", "parent", "rank", "virtual",
        "weight",
    )  # fmt: skip

    def __init__(
        self,
        parent: "Branch | None",
        account: Account | None = None,
        *,
        weight: float = 1.0,
        rank: int = 0,
        by_heads: bool = False,
        by_rank: bool = False,
    ) -> None:
        self.parent = parent
        self.account = account
        self.weight = weight
        self.rank = rank
        self.by_heads = by_heads
        self.by_rank = by_rank
        self.virtual = 0.0
        self.clock = 0.0
        self.flying = 0.0
        self.paid = 0.0
        self.children: Order[Branch] = Order()

    @property
    def is_empty(self) -> bool:
        return not self.children

    @property
    def is_listed(self) -> bool:
        """Whether its parent may serve it."""
        return self.parent is not None and self in self.parent.children

    @property
    def top(self) -> "Branch":
        """Class that it belongs to."""
        branch = self
        while branch.parent is not None and branch.parent.parent is not None:
            branch = branch.parent
        return branch

    def head(self) -> Key:
        """Return the key of the job that would be served first."""
        first = self.children.first()
        assert first is not None
        return self.children.key(first)

    def key_of(self, child: "Branch") -> Key:
        """Return the key that orders a child."""
        if self.by_rank:
            return (child.rank, 0.0)
        return child.head() if self.by_heads else (child.virtual, 0.0)

    def list_up(self) -> None:
        """List the branch in its parent, because it has jobs that may be picked."""
        parent = self.parent
        if (
            parent is None
            or self.is_listed
            or self.is_empty
            or (self.account is not None and self.account.is_blocked)
        ):
            return
        first = parent.children.first()
        # Another child may be behind the clock because it was charged too much; a newcomer must not wait for it.
        self.virtual = max(self.virtual, parent.clock if first is None else min(parent.clock, first.virtual))
        parent.children.put(self, parent.key_of(self))
        parent.list_up()

    def unlist(self) -> None:
        """Remove the branch from its parent, because none of its jobs may be picked now."""
        if (parent := self.parent) is not None and self.is_listed:
            parent.children.discard(self)
            if parent.is_empty:
                parent.unlist()

    def charge(self, cost: float) -> None:
        """Add to the expected cost of its jobs in flight; may be negative."""
        branch: Branch = self
        while (parent := branch.parent) is not None:
            branch.flying += cost
            branch.virtual += cost / branch.weight
            if branch in parent.children:
                parent.children.put(branch, parent.key_of(branch))
            branch = parent

    def clocks(self) -> Clocks:
        """Return the clocks of all branches above it, for `settle`."""
        found: list[float] = []
        parent = self.parent
        while parent is not None:
            found.append(parent.clock)
            parent = parent.parent
        return tuple(found)

    def settle(self, charged: float, took: float, since: Clocks) -> None:
        """Replace the charge for a job that has left by its actual cost. `reorder` has to follow.

        Args:
            since: the clocks when it was dispatched.
        """
        branch: Branch = self
        for then in since:
            parent = branch.parent
            assert parent is not None
            weight, clock = branch.weight, parent.clock
            # Avoids rounding errors below zero.
            branch.flying = max(branch.flying - charged, 0.0)
            branch.paid = max(branch.paid, then + took / weight)
            most = max(clock, branch.paid) + branch.flying / weight
            least = clock - (branch.flying + charged) / weight
            branch.virtual = min(max(branch.virtual + (took - charged) / weight, least), most)
            branch = parent

    def catch_up(self, cost: float) -> None:
        """Advance the clocks to the virtual time before the last of several jobs that were charged together."""
        branch: Branch = self
        while (parent := branch.parent) is not None:
            parent.clock = max(parent.clock, branch.virtual - cost / branch.weight)
            branch = parent

    def reorder(self) -> None:
        """Update its key, and those of the branches above."""
        branch: Branch = self
        while (parent := branch.parent) is not None:
            if branch in parent.children:
                parent.children.put(branch, parent.key_of(branch))
            branch = parent

    def serve(self) -> "Leaf | None":
        """Return the leaf below it whose turn it is."""
        branch: Branch = self
        while not isinstance(branch, Leaf):
            child = branch.children.first()
            if child is None:
                return None
            branch.clock = max(branch.clock, child.virtual)
            branch = child
        return branch


class Leaf(Branch):
    """The jobs of one tenant and class, by lanes.

    Attributes:
        lanes: lanes with jobs.
        flights: number of its jobs in flight.
        known: all lanes that were requested.
        needs: needs of the last job of each lane, unless it was one slot.
    """

    __slots__ = ("_clock", "_served", "flights", "known", "lanes", "needs")

    def __init__(
        self, parent: Branch, account: Account, *, weight: float, rank: int, by_heads: bool, by_rank: bool
    ) -> None:
        super().__init__(parent, account, weight=weight, rank=rank, by_heads=by_heads, by_rank=by_rank)
        self.known: list[Lane] = []
        self.needs: dict[Lane, Amounts] = {}
        self.lanes: Order[Lane] = Order()
        self.flights = 0
        self._served: dict[Lane, float] = {}
        self._clock = 0.0

    @property
    def is_empty(self) -> bool:
        return not self.lanes

    def head(self) -> Key:
        first = self.lanes.first()
        assert first is not None
        return self.lanes.key(first)

    def put(self, lane: Lane, head: Key) -> None:
        """Add a lane with jobs; `head` is the key of its first job, if the order depends on it."""
        if self.by_heads:
            self._served.pop(lane, None)
            self.lanes.put(lane, head)
        elif lane not in self.lanes:
            self._served[lane] = max(self._served.get(lane, 0.0), self._clock)
            self.lanes.put(lane, self._turn_of(lane))

    def is_alone(self) -> bool:
        """Whether no other lane could be served, and no cap applies."""
        if len(self.lanes) > 1:
            return False
        branch: Branch = self
        while (parent := branch.parent) is not None:
            if len(parent.children) > 1:
                return False
            branch = parent
        return self.account is not None and not any(account.most for account in self.account.path())

    def record_served(self, lane: Lane, number: int) -> None:
        """Record that jobs of a lane were picked."""
        if self.by_heads:
            count = self._served[lane] = self._served.get(lane, 0.0) + number
            if count >= _AS_OLD:
                self.lanes.put(lane, (inf, 0.0))
        else:
            step = _EACH_PRIORITY**-lane.priority
            # As if they were picked one by one.
            self._clock = max(self._clock, self._served[lane] + (number - 1) * step)
            self._served[lane] += number * step
            self.lanes.put(lane, self._turn_of(lane))

    def forget(self, lane: Lane) -> None:
        """Remove a lane without jobs."""
        self.lanes.discard(lane)
        if not self.lanes:
            self._served.clear()
            self._clock = 0.0

    def _turn_of(self, lane: Lane) -> Key:
        if self.by_rank:
            return (-lane.priority, 0.0)
        # The turn after its next job, so that the highest priority goes first if all are new.
        return (self._served[lane] + _EACH_PRIORITY**-lane.priority, -lane.priority)
