"""Room within the caps of pools, for placed jobs with different amounts. Pure."""

from collections.abc import Mapping

from taskmq.model.jobs.pools import Amounts, TenantPool
from taskmq.scheduler.fairness.accounts import Account, Accounts


class Caps:
    """Placed amounts of each pool, for each queue separately."""

    def __init__(self, pools: Mapping[str, TenantPool]) -> None:
        self._pools = pools
        self._queues: dict[str, Accounts] = {}

    def has_room(self, queue: str, tenant: str, amounts: Amounts) -> bool:
        """Whether a tenant's additional amounts are within all its caps."""
        account = self._account(queue, tenant)
        found = account.full(amounts) is None
        self._forget(queue, account)
        return found

    def take(self, queue: str, tenant: str, amounts: Amounts) -> None:
        """Add the amounts of a placed job."""
        self._account(queue, tenant).take(amounts)

    def give(self, queue: str, tenant: str, amounts: Amounts) -> None:
        """Subtract the amounts of a placed job that has left."""
        account = self._account(queue, tenant)
        account.give(amounts)
        self._forget(queue, account)

    def _account(self, queue: str, tenant: str) -> Account:
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = Accounts(self._pools)
        return found.of(tenant)

    def _forget(self, queue: str, account: Account) -> None:
        # A configured pool may have children.
        if not account.flights and account.name not in self._pools:
            self._queues[queue].forget(account)
