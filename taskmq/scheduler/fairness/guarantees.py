"""What pools and classes of one queue are to have in any case. Pure.

A pool has its `min`, or the part of it that can be kept where more was promised than there is, as when turns are
dealt out. A priority class has its share of the slots, where the queue goes by classes and none goes first always.
"""

from collections.abc import Mapping
from math import ceil, floor
from typing import Final

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import SLOTS_ASKED, Amounts, QueuePolicy, TenantPool, path_of, pool_group
from taskmq.model.topology import CLASSES, class_of
from taskmq.scheduler.fairness.accounts import Accounts
from taskmq.scheduler.fairness.queue_turns import IN_CLASSES

__all__ = ["Guarantees"]

# Parts of sums are not exact.
_TINY: Final = 1e-9


class Guarantees:
    """Those of one queue.

    Args:
        capacities: what its workers or nodes have.

    Attributes:
        least: by pool and class, under the names that people know them by; of slots only whole ones.

    Raises:
        InvalidOption: these are no pools, see `check_pools`.
    """

    def __init__(self, policy: QueuePolicy, pools: Mapping[str, TenantPool], *, capacities: Amounts) -> None:
        self._pools = pools
        self.least: dict[str, Amounts] = {}
        slots = capacities.get(SLOTS_ASKED, 0.0)
        honoured = Accounts(pools).honoured(capacities)
        for pool in pools.values():
            # What no node has can be guaranteed to none, nor can what jobs of any worker take beside a slot.
            least = {name: amount * honoured for name, amount in pool.min.items() if name in capacities}
            if SLOTS_ASKED in least:
                least[SLOTS_ASKED] = float(ceil(least[SLOTS_ASKED] - _TINY))
            self._promise(pool_group(pool.name), least)
        if policy.policy in IN_CLASSES and not policy.strict:
            whole = sum(policy.shares.values())
            for name in CLASSES:
                least = {SLOTS_ASKED: float(floor(policy.shares[name] / whole * slots + _TINY))}
                self._promise(_class_name(name), least)

    def groups(self, lane: Lane) -> tuple[str, ...]:
        """To which of those in `least` the jobs of a lane belong, the outermost pool first, the class last."""
        names = [pool_group(pool.name) for pool in path_of(lane.tenant, self._pools)]
        names.append(_class_name(class_of(lane.priority)))
        return tuple(name for name in names if name in self.least)

    def _promise(self, name: str, least: Amounts) -> None:
        if some := {resource: amount for resource, amount in least.items() if amount > 0}:
            self.least[name] = some


def _class_name(name: str) -> str:
    return f"class {name}"
