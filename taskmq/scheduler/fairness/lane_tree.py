"""The tree of one queue: the branch of each pool and class, and the leaf of each lane. Pure."""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Final

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import Amounts, QueuePolicy, TenantPool
from taskmq.model.topology import CLASSES, Policy, class_of
from taskmq.scheduler.fairness.accounts import Account, Accounts
from taskmq.scheduler.fairness.branches import Branch, Leaf
from taskmq.scheduler.fairness.order import Order

IN_CLASSES: Final[frozenset[Policy]] = frozenset({"fair", "weighted", "round_robin", "deadline"})
BY_HEADS: Final[frozenset[Policy]] = frozenset({"fifo", "priority", "deadline"})
# Number of leaves with a debt to check at a time.
_CHECKED: Final = 1000


class LaneTree:
    """The branches of one queue, and the accounts of its pools.

    Attributes:
        root: the queue.
        accounts: accounts of the pools.
    """

    def __init__(self, policy: QueuePolicy, pools: Mapping[str, TenantPool]) -> None:
        self._policy = policy
        self._by_heads = policy.policy in BY_HEADS
        self.accounts = Accounts(pools)
        self._has_minimums = any(amount > 0 for pool in pools.values() for amount in pool.min.values())
        self._owed: Order[Account] = Order()
        # Branches of each account, by class.
        self._branches: defaultdict[Account, dict[int, Branch]] = defaultdict(dict)
        self._leaves: dict[Lane, Leaf] = {}
        # Leaves without jobs whose debt others have to catch up with before it can be dropped.
        self._owing: OrderedDict[Leaf, None] = OrderedDict()
        self.root = Branch(None, by_rank=policy.strict)
        self._classes: list[Branch] = []
        if policy.policy in IN_CLASSES:
            for rank, name in enumerate(CLASSES):
                self._classes.append(
                    Branch(self.root, weight=policy.shares[name], rank=rank, by_heads=self._by_heads)
                )
        else:
            self._classes.append(Branch(self.root, by_heads=self._by_heads))

    def find_owed(self, part: float) -> Leaf | None:
        """Return a leaf of the pool furthest below its minimum; None if no pool is below this part of it."""
        while (owed := self._owed.first()) is not None and self._owed.key(owed)[0] < part:
            blocked = next((above for above in owed.path() if above.is_blocked), None)
            if blocked is None:
                branches = [branch for branch in self._branches[owed].values() if branch.is_listed]
                return min(branches, key=lambda branch: self.root.key_of(branch.top)).serve()
            self._owed.discard(owed)
            blocked.suspended.append(owed)
        return None

    def take(self, leaf: Leaf, needs: Amounts, count: int = 1) -> None:
        """Count jobs of a leaf as in flight."""
        assert leaf.account is not None
        leaf.flights += count
        leaf.account.take(needs, count)
        self.see(leaf.account)

    def give(self, leaf: Leaf, needs: Amounts) -> None:
        """Count a job of a leaf as no longer in flight."""
        assert leaf.account is not None
        leaf.flights -= 1
        leaf.account.give(needs)
        account: Account | None = leaf.account
        while account is not None:
            if account.is_blocked:
                self._unblock(account)
            account = account.parent
        self.see(leaf.account)

    def block(self, account: Account) -> None:
        """Skip the branches of a pool that is at a cap, until one of its jobs ends."""
        account.is_blocked = True
        for branch in self._branches[account].values():
            branch.unlist()
        self.see(account)

    def _unblock(self, account: Account) -> None:
        account.is_blocked = False
        for branch in self._branches[account].values():
            branch.list_up()
        for owed in account.suspended:
            self.see(owed)
        account.suspended.clear()

    def see(self, account: Account | None) -> None:
        """Update which of these pools are below their minimum."""
        while account is not None and self._has_minimums:
            if account.least:
                if any(branch.is_listed for branch in self._branches[account].values()):
                    self._owed.put(account, (account.part_of_minimum(), 0.0))
                else:
                    self._owed.discard(account)
            account = account.parent

    def leaf(self, lane: Lane) -> Leaf:
        """Return the leaf of a lane, created on first use."""
        found = self._leaves.get(lane)
        if found is None:
            found = self._leaves[lane] = self._leaf_of(lane)
            found.known.append(lane)
        return found

    def _leaf_of(self, lane: Lane) -> Leaf:
        rank = 0 if len(self._classes) == 1 else CLASSES.index(class_of(lane.priority))
        account = self.accounts.of(lane.tenant)
        found = self._branches[account].get(rank)
        if isinstance(found, Leaf):
            return found
        parent = self._classes[rank]
        for above in reversed(list(account.path())[1:]):
            branch = self._branches[above].get(rank)
            if branch is None:
                branch = Branch(parent, above, weight=self._weight(above), by_heads=self._by_heads)
                branch.virtual = parent.clock
                self._branches[above][rank] = branch
            parent = branch
        leaf = Leaf(
            parent,
            account,
            weight=self._weight(account),
            rank=rank,
            by_heads=self._by_heads,
            by_rank=self._policy.strict,
        )
        self._branches[account][rank] = leaf
        return leaf

    def _weight(self, account: Account) -> float:
        return account.weight if self._policy.policy == "weighted" else 1.0

    def prune_owing(self) -> None:
        """Drop leaves whose debt the others have caught up with."""
        for leaf in list(islice(self._owing, _CHECKED)):
            del self._owing[leaf]
            self.prune(leaf)

    def prune(self, leaf: Leaf) -> None:
        """Drop a leaf without jobs that has no debt to the others."""
        if leaf.flights or leaf.lanes:
            return
        parent, account = leaf.parent, leaf.account
        assert parent is not None
        assert account is not None
        if leaf.virtual > parent.clock and not parent.is_empty:
            self._owing[leaf] = None
            return
        self._owing.pop(leaf, None)
        of_account = self._branches[account]
        del of_account[leaf.rank]
        for lane in leaf.known:
            del self._leaves[lane]
        if not of_account and not account.flights:
            del self._branches[account]
            self.accounts.forget(account)
