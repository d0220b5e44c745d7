"""Accounts of pools in one queue: usage, minimum and cap. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

from taskmq.model.jobs.pools import SLOTS_ASKED, Amounts, TenantPool, check_pools, path_of

ONE_SLOT: Final[Amounts] = {SLOTS_ASKED: 1.0}
"""Needs of a job if nothing else is known; no job needs less."""

# Most of a queue's capacity for all minimums together; the rest is left to pools without one.
_PROMISED_AT_MOST: Final = 0.9


class Account:
    """Usage of one pool, including the pools below it.

    Attributes:
        used: amounts in flight.
        flights: number of jobs in flight.
        latest: needs of the last dispatched job.
        is_blocked: whether its next job would exceed its cap; nothing below it is picked until one of its jobs ends.
        suspended: pools below it that are below their minimum, and cannot be served while it is blocked.
    """

    __slots__ = ("flights", "is_blocked", "latest", "least", "most", "name", "parent", "suspended", "used", "weight")

    def __init__(self, pool: TenantPool, parent: "Account | None") -> None:
        self.name = pool.name
        self.parent = parent
        self.weight = pool.weight
        self.least: Amounts = {resource: amount for resource, amount in pool.min.items() if amount > 0}
        self.most: Amounts = pool.max
        self.used: dict[str, float] = {}
        self.flights = 0
        self.latest: Amounts = ONE_SLOT
        self.is_blocked = False
        self.suspended: list[Account] = []

    def path(self) -> "Iterator[Account]":
        """Yield this account, its parent, and so on."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def full(self, needs: Amounts) -> "Account | None":
        """Return the outermost pool without room for such a job; None if all have room."""
        found: Account | None = None
        account: Account | None = self
        while account is not None:
            if account.most and not account.has_room(needs):
                found = account
            account = account.parent
        return found

    def take(self, needs: Amounts, count: int = 1) -> None:
        """Add the usage of dispatched jobs."""
        account: Account | None = self
        while account is not None:
            account.flights += count
            account.latest = needs
            used = account.used
            for resource, amount in needs.items():
                used[resource] = used.get(resource, 0.0) + amount * count
            account = account.parent

    def give(self, needs: Amounts) -> None:
        """Subtract the usage of a job that has left."""
        account: Account | None = self
        while account is not None:
            account.flights -= 1
            if not account.flights:
                # Removes rounding errors.
                account.used.clear()
            else:
                for resource, amount in needs.items():
                    account.used[resource] -= amount
            account = account.parent

    def part_of_minimum(self) -> float:
        """Return the used part of its minimum, for the resource with the largest part; 1 means all.

        Only resources that its latest job needs count, because other minimums do not help such a job.
        """
        parts = (self.used.get(name, 0.0) / amount for name, amount in self.least.items() if name in self.latest)
        return max(parts, default=1.0)

    def has_room(self, needs: Amounts) -> bool:
        """Whether such a job is within this pool's own cap."""
        return all(
            self.used.get(resource, 0.0) + needs.get(resource, 0.0) <= most * (1 + 1e-9)
            for resource, most in self.most.items()
            if needs.get(resource, 0.0) > 0
        )


class Accounts:
    """The accounts of one queue, created on demand.

    Raises:
        InvalidOption: the pools are invalid, see `check_pools`.
    """

    def __init__(self, pools: Mapping[str, TenantPool]) -> None:
        self._pools = check_pools(pools.values())
        self._parents = {pool.parent for pool in pools.values()}
        self._found: dict[str, Account] = {}
        self._own: dict[str, Account] = {}
        self._promised: dict[str, float] = {}
        for pool in pools.values():
            if not any(above.min for above in path_of(pool.name, pools)[:-1]):
                for resource, amount in pool.min.items():
                    self._promised[resource] = self._promised.get(resource, 0.0) + amount

    def of(self, tenant: str) -> Account:
        """Return the account of a tenant's own jobs."""
        known = self._own.get(tenant) if tenant in self._parents else self._found.get(tenant)
        if known is not None:
            return known
        account: Account | None = None
        for pool in path_of(tenant, self._pools):
            found = self._found.get(pool.name)
            if found is None:
                found = self._found[pool.name] = Account(pool, account)
            account = found
        assert account is not None
        if tenant in self._parents:
            account = self._own[tenant] = Account(TenantPool(name=tenant), account)
        return account

    def forget(self, account: Account) -> None:
        """Drop an account that no lane needs for now."""
        if self._own.pop(account.name, None) is None:
            self._found.pop(account.name, None)

    def honourable_part(self, capacities: Amounts) -> float:
        """Return the part of all minimums that can be kept: 1 unless they exceed the capacity."""
        part = 1.0
        for resource, promised in self._promised.items():
            capacity = capacities.get(resource)
            if capacity is not None and promised > 0:
                part = min(part, _PROMISED_AT_MOST * capacity / promised)
        return part
