"""The tree in which pools of one queue take turns. Pure.

    queue -> priority class -> pool -> ... -> the jobs of one tenant and class, by lanes

Of its children a branch serves the one with the least key. By turns that is the one with the least *virtual time*:
what its jobs have taken, divided by its weight. One that had no jobs for a while comes back at the virtual time of
those that had (start-time fair queueing): no branch saves up turns. By heads it is the one whose first job comes
first.

What a branch owes is bounded, and so is what it is owed, however wrong the expected run times were: it is ahead of
the clock by no more than what it has in flight, or what its longest run alone comes to; and behind it by no more than
what it has in flight and was charged for the run that has just ended. So no branch pays later for room that others
left unused, and one with nothing in flight is served after each other one has had a turn of bounded size.
"""

from math import inf
from typing import Final

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import Amounts
from taskmq.scheduler.fairness.accounts import Account
from taskmq.scheduler.fairness.order import Key, Order

__all__ = ["Branch", "Clocks", "Leaf"]

Clocks = tuple[float, ...]
"""The virtual times above a branch, its parent's first."""

# Of a tenant's jobs in one class each priority gets four times the turns of the one below it.
_EACH_PRIORITY: Final = 4.0
# So many jobs of a lane are taken for as old as the first one, which is all that is known of it.
_AS_OLD: Final = 8


class Branch:
    """A pool in one class, a class, or the queue itself.

    Args:
        by_heads: how its children take turns.
        rank: of its class, 0 for the highest.

    Attributes:
        virtual: what its jobs have taken, by its weight.
        flying: what its jobs in flight were charged.
        paid: the virtual time up to which one of its runs alone has brought it.
        clock: the virtual time of what was served last below it.
        children: those that have jobs which may be picked.
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
        """The class that it belongs to."""
        branch = self
        while branch.parent is not None and branch.parent.parent is not None:
            branch = branch.parent
        return branch

    def head(self) -> Key:
        """The key of what would be served first."""
        first = self.children.first()
        assert first is not None
        return self.children.key(first)

    def key_of(self, child: "Branch") -> Key:
        """By what it orders a child."""
        if self.by_rank:
            return (child.rank, 0.0)
        return child.head() if self.by_heads else (child.virtual, 0.0)

    def list_up(self) -> None:
        """It has jobs that may be picked."""
        parent = self.parent
        if (
            parent is None
            or self.is_listed
            or self.is_empty
            or (self.account is not None and self.account.is_blocked)
        ):
            return
        first = parent.children.first()
        # One of the others may be behind the clock, because it was charged too much: no newcomer waits for that.
        self.virtual = max(self.virtual, parent.clock if first is None else min(parent.clock, first.virtual))
        parent.children.put(self, parent.key_of(self))
        parent.list_up()

    def unlist(self) -> None:
        """Nothing of it may be picked for now."""
        if (parent := self.parent) is not None and self.is_listed:
            parent.children.discard(self)
            if parent.is_empty:
                parent.unlist()

    def charge(self, cost: float) -> None:
        """Its jobs in flight will probably take so much more, or less."""
        branch: Branch = self
        while (parent := branch.parent) is not None:
            branch.flying += cost
            branch.virtual += cost / branch.weight
            if branch in parent.children:
                parent.children.put(branch, parent.key_of(branch))
            branch = parent

    def clocks(self) -> Clocks:
        """Those of all that are above it, for `settle`."""
        found: list[float] = []
        parent = self.parent
        while parent is not None:
            found.append(parent.clock)
            parent = parent.parent
        return tuple(found)

    def settle(self, charged: float, took: float, since: Clocks) -> None:
        """A job that was charged so much has left, and has taken so much.

        Args:
            since: the clocks when it went into flight.
        """
        branch: Branch = self
        for then in since:
            parent = branch.parent
            assert parent is not None
            weight, clock = branch.weight, parent.clock
            # Sums of fractions leave something behind.
            branch.flying = max(branch.flying - charged, 0.0)
            branch.paid = max(branch.paid, then + took / weight)
            most = max(clock, branch.paid) + branch.flying / weight
            least = clock - (branch.flying + charged) / weight
            branch.virtual = min(max(branch.virtual + (took - charged) / weight, least), most)
            if branch in parent.children:
                parent.children.put(branch, parent.key_of(branch))
            branch = parent

    def catch_up(self, cost: float) -> None:
        """The last of several jobs that were charged together was served at the virtual time before its own cost."""
        branch: Branch = self
        while (parent := branch.parent) is not None:
            parent.clock = max(parent.clock, branch.virtual - cost / branch.weight)
            branch = parent

    def reorder(self) -> None:
        """Its key, and so perhaps that of those above, is another one."""
        branch: Branch = self
        while (parent := branch.parent) is not None:
            if branch in parent.children:
                parent.children.put(branch, parent.key_of(branch))
            branch = parent

    def serve(self) -> "Leaf | None":
        """The jobs below it whose turn it is."""
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
        lanes: those that have jobs.
        flights: how many of its jobs are in flight.
        known: the lanes that it was asked for.
        needs: of lanes whose last job took something else than a slot: what that was.
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
        """The lane has jobs; `head` is the key of its first one, where that counts."""
        if self.by_heads:
            self._served.pop(lane, None)
            self.lanes.put(lane, head)
        elif lane not in self.lanes:
            self._served[lane] = max(self._served.get(lane, 0.0), self._clock)
            self.lanes.put(lane, self._turn_of(lane))

    def is_alone(self) -> bool:
        """Whether there is no other lane whose turn it could be, and no cap."""
        if len(self.lanes) > 1 or self.account is None or any(account.most for account in self.account.path()):
            return False
        branch: Branch = self
        while (parent := branch.parent) is not None:
            if len(parent.children) > 1:
                return False
            branch = parent
        return True

    def served(self, lane: Lane, number: int) -> None:
        """So many jobs of the lane were picked."""
        if self.by_heads:
            count = self._served[lane] = self._served.get(lane, 0.0) + number
            if count >= _AS_OLD:
                self.lanes.put(lane, (inf, 0.0))
        else:
            self._clock = max(self._clock, self._served[lane])
            self._served[lane] += number * _EACH_PRIORITY**-lane.priority
            self.lanes.put(lane, self._turn_of(lane))

    def forget(self, lane: Lane) -> None:
        """The lane has no jobs any more."""
        self.lanes.discard(lane)
        if not self.lanes:
            self._served.clear()
            self._clock = 0.0

    def _turn_of(self, lane: Lane) -> Key:
        if self.by_rank:
            return (-lane.priority, 0.0)
        # When its next one will have been served: so the highest goes first, also where all are new.
        return (self._served[lane] + _EACH_PRIORITY**-lane.priority, -lane.priority)
