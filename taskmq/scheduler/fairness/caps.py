"""What caps of pools leave room for where jobs are placed on nodes, and take different amounts. Pure."""

from collections.abc import Mapping

from taskmq.model.jobs.pools import Amounts, TenantPool
from taskmq.scheduler.fairness.accounts import Account, Accounts

__all__ = ["Caps"]


class Caps:
    """The amounts that are placed of each pool, in each queue for itself."""

    def __init__(self, pools: Mapping[str, TenantPool]) -> None:
        self._pools = pools
        self._queues: dict[str, Accounts] = {}

    def has_room(self, queue: str, tenant: str, amounts: Amounts) -> bool:
        """Whether so much more of the tenant's is within all its caps."""
        account = self._account(queue, tenant)
        found = account.full(amounts) is None
        self._forget(queue, account)
        return found

    def take(self, queue: str, tenant: str, amounts: Amounts) -> None:
        """A job is placed."""
        self._account(queue, tenant).take(amounts)

    def give(self, queue: str, tenant: str, amounts: Amounts) -> None:
        """A job that was placed has left."""
        account = self._account(queue, tenant)
        account.give(amounts)
        self._forget(queue, account)

    def _account(self, queue: str, tenant: str) -> Account:
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = Accounts(self._pools)
        return found.of(tenant)

    def _forget(self, queue: str, account: Account) -> None:
        # Of a described pool others may be parts.
        if not account.flights and account.name not in self._pools:
            self._queues[queue].forget(account)
