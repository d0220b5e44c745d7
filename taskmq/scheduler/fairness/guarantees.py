"""Guaranteed amounts of pools and classes in one queue. Pure.

A pool has its `min`, or the part of it that can be kept if the minimums exceed the capacity. A priority class has its
share of the slots, if the queue's policy uses classes without strict priority.
"""

from collections.abc import Mapping
from math import ceil, floor
from typing import Final

from taskmq.contracts.jobs import Lane
from taskmq.model.jobs.pools import SLOTS_ASKED, Amounts, QueuePolicy, TenantPool, path_of, pool_group
from taskmq.model.topology import CLASSES, class_of
from taskmq.scheduler.fairness.accounts import Accounts
from taskmq.scheduler.fairness.lane_tree import IN_CLASSES

# Tolerance for rounding errors.
_TINY: Final = 1e-9


class Guarantees:
    """The guarantees of one queue.

    Args:
        capacities: capacities of its workers or nodes.

    Attributes:
        least: guaranteed amounts by name of pool or class; slots are whole numbers.

    Raises:
        InvalidOption: the pools are invalid, see `check_pools`.
    """

    def __init__(self, policy: QueuePolicy, pools: Mapping[str, TenantPool], *, capacities: Amounts) -> None:
        self._pools = pools
        self.least: dict[str, Amounts] = {}
        slots = capacities.get(SLOTS_ASKED, 0.0)
        part = Accounts(pools).honourable_part(capacities)
        for pool in pools.values():
            # Resources that no node has cannot be guaranteed.
            least = {name: amount * part for name, amount in pool.min.items() if name in capacities}
            if SLOTS_ASKED in least:
                least[SLOTS_ASKED] = float(ceil(least[SLOTS_ASKED] - _TINY))
            self._promise(pool_group(pool.name), least)
        if policy.policy in IN_CLASSES and not policy.strict:
            whole = sum(policy.shares.values())
            for name in CLASSES:
                least = {SLOTS_ASKED: float(floor(policy.shares[name] / whole * slots + _TINY))}
                self._promise(_class_name(name), least)

    def groups(self, lane: Lane) -> tuple[str, ...]:
        """Return the names in `least` that a lane's jobs belong to, the outermost pool first, the class last."""
        names = [pool_group(pool.name) for pool in path_of(lane.tenant, self._pools)]
        names.append(_class_name(class_of(lane.priority)))
        return tuple(name for name in names if name in self.least)

    def _promise(self, name: str, least: Amounts) -> None:
        if some := {resource: amount for resource, amount in least.items() if amount > 0}:
            self.least[name] = some


def _class_name(name: str) -> str:
    return f"class {name}"
