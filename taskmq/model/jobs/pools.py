"""Policies of queues and pools of tenants: the operators' rules of whose turn it is. Pure.

    queue -> policy
    pool  -> its parent -> ... -> the queue: weight among its neighbours, a guaranteed minimum, a cap

The jobs of a tenant belong to the pool of the tenant's name. A tenant without a pool is one by itself, with the
values of the pool `*` if there is one. Amounts are jobs in flight (`slots`), or resources that placed jobs use of
nodes; they count in each queue separately.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NoReturn

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.resources import read_amounts
from taskmq.model.topology import CLASSES, POLICIES, Policy, PriorityClass
from taskmq.model.units import did_you_mean

EVERY_TENANT: Final = "*"
"""The pool whose values apply to tenants without a pool of their own."""
CLASS_SHARES: Final[Mapping[PriorityClass, int]] = {"high": 60, "medium": 30, "low": 10}

Amounts = Mapping[str, float]
SLOTS_ASKED: Final = "slots"
"""The resource that every job needs one unit of."""

_Share = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_LONGEST: Final = 200
_LONGEST_GRACE: Final = 86_400.0
_MOST_TIMES: Final = 1000


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The order in which the jobs of a queue take turns.

    Attributes:
        policy: see `Policy`.
        shares: share of the capacity for each priority class while all have jobs.
        strict: the highest class with jobs always goes first, so lower classes may starve; for `priority`: waiting
            jobs do not rise.
        ageing: seconds of waiting that raise a job in a `priority` queue by one priority.
        preempt_after: seconds below its guarantee after which runs are preempted for a pool or class.
        preempt_grace: seconds that a preempted run has to stop.
        preempt_most: how often in a row a job can be preempted.
    """

    policy: Policy = "fair"
    shares: dict[PriorityClass, _Share] = msgspec.field(
        default_factory=lambda: dict[PriorityClass, float](CLASS_SHARES)
    )
    strict: bool = False
    ageing: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 60.0
    preempt_after: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 5.0
    preempt_grace: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    preempt_most: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise InvalidOption(f"policy={self.policy!r}: {did_you_mean(str(self.policy), POLICIES)}")
        if set(self.shares) != set(CLASSES) or not all(share > 0 for share in self.shares.values()):
            raise InvalidOption(f"shares={self.shares!r}: give a number above 0 for each of {', '.join(CLASSES)}")
        if self.ageing <= 0:
            raise InvalidOption(f"ageing={self.ageing!r}: must be more than 0 seconds")
        for option in ("preempt_after", "preempt_grace"):
            if not 0 <= getattr(self, option) <= _LONGEST_GRACE:
                raise InvalidOption(f"{option}={getattr(self, option)!r}: must be 0 to {_LONGEST_GRACE:g} seconds")
        if not 0 <= self.preempt_most <= _MOST_TIMES:
            raise InvalidOption(f"preempt_most={self.preempt_most!r}: must be 0 (never) to {_MOST_TIMES}")


FAIR: Final = QueuePolicy()
"""The default policy of a queue."""


class TenantPool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A share of a queue's capacity.

    Attributes:
        name: the tenant whose jobs belong to it, or the name of a group of pools; `*`: see `EVERY_TENANT`.
        parent: the pool that contains it; None: the queue itself.
        weight: relative to its neighbours, in `weighted` queues. Capacity that one does not use is lent to the
            others, and reclaimed as runs end.
        min: amounts that it gets first whenever it has jobs; all minimums together are at most nine tenths.
        max: upper bounds; its jobs wait above them.
    """

    name: str
    parent: str | None = None
    weight: _Share = 1.0
    min: dict[str, _Amount] = {}
    max: dict[str, _Amount] = {}

    def __post_init__(self) -> None:
        if len(self.name.encode(errors="replace")) > _LONGEST or not self.name.isprintable():
            self._refuse(f"the name is to have at most {_LONGEST} printable bytes")
        if not 0 < self.weight <= 1e6:
            self._refuse(f"weight={self.weight!r}: a number above 0, up to 1,000,000")
        for option, amounts in (("min", self.min), ("max", self.max)):
            for resource, amount in amounts.items():
                if not 0 <= amount <= 1e12:
                    self._refuse(f"{option} of {resource}={amount!r}: a number from 0 to 1e12")
        for resource, amount in self.min.items():
            if amount > self.max.get(resource, amount):
                self._refuse(f"min of {resource} is more than its max: {amount:g} > {self.max[resource]:g}")
        if self.name == EVERY_TENANT and self.min:
            self._refuse("a minimum for every tenant can be promised to none: give it to pools by name")

    def check_amounts(self) -> "TenantPool":
        """Return the pool if its amounts are valid; for callers that describe pools.

        Raises:
            InvalidOption: an amount is not of a resource.
        """
        for option, amounts in (("min", self.min), ("max", self.max)):
            if some := {resource: amount for resource, amount in amounts.items() if amount}:
                read_amounts(some, what=f"pool {self.name!r}: {option}")
        return self

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidOption(f"pool {self.name[:80]!r}: {reason}")


class Sharing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of turns that the users of a store share.

    Attributes:
        version: increases by 1 with every change; 0: never set.
        queues: policies, which override those of the apps.
        pools: by name.
    """

    version: int = 0
    queues: dict[str, QueuePolicy] = {}
    pools: dict[str, TenantPool] = {}

    def __post_init__(self) -> None:
        check_pools(self.pools.values())
        for name, pool in self.pools.items():
            if name != pool.name:
                raise InvalidOption(f"pool {pool.name!r} is listed as {name!r}")


def read_sharing(content: str | bytes | None) -> Sharing:
    """Read the stored settings; None yields empty ones."""
    if content is None:
        return Sharing()
    found = msgspec.json.decode(content)
    for policy in found.get("queues", {}).values():
        shares = policy.get("shares", {})
        if "default" in shares:
            # An earlier name of the middle class.
            shares["medium"] = shares.pop("default")
    return msgspec.convert(found, Sharing)


def check_pools(pools: Iterable[TenantPool]) -> dict[str, TenantPool]:
    """Return the pools by name.

    Raises:
        InvalidOption: two share a name, a parent is missing, or a pool contains itself.
    """
    found: dict[str, TenantPool] = {}
    for pool in pools:
        if pool.name in found:
            raise InvalidOption(f"pool {pool.name!r} is defined twice")
        found[pool.name] = pool
    for pool in found.values():
        if pool.parent is not None and (pool.parent not in found or pool.parent == EVERY_TENANT):
            raise InvalidOption(f"pool {pool.name!r}: its parent {pool.parent!r} does not exist")
        seen = {pool.name}
        above = pool.parent
        while above is not None:
            if above in seen:
                raise InvalidOption(f"pool {pool.name!r} is its own ancestor: {' -> '.join(sorted(seen))}")
            seen.add(above)
            above = found[above].parent if above in found else None
    return found


def pool_group(name: str) -> str:
    """Return the name under which people know a pool that is below its guarantee."""
    return f"pool {name}"


def preemption_reason(group: str) -> str:
    """Return the reason of a preemption for its job's history: the pool or class that needed room."""
    return f"preempted by {group}"


def known_reason(reason: str, tenant: str) -> str:
    """Return a `preemption_reason` as the job's tenant may see it: without the pool of another tenant."""
    if reason.startswith(preemption_reason(pool_group(""))) and reason != preemption_reason(pool_group(tenant)):
        return preemption_reason("another pool")
    return reason


def path_of(tenant: str, pools: Mapping[str, TenantPool]) -> list[TenantPool]:
    """Return the pools of a tenant's jobs from the outermost to its own."""
    own = pools.get(tenant)
    if own is None:
        usual = pools.get(EVERY_TENANT)
        return [
            TenantPool(name=tenant) if usual is None else msgspec.structs.replace(usual, name=tenant, parent=None)
        ]
    path = [own]
    while path[0].parent is not None:
        path.insert(0, pools[path[0].parent])
    return path


def shares_of(tenants: Iterable[str], pools: Mapping[str, TenantPool], *, weighted: bool) -> dict[str, float]:
    """Return the share of a queue for each tenant while all of them have jobs; the sum is 1."""
    children: dict[str | None, dict[str, float]] = {}
    paths = {tenant: path_of(tenant, pools) for tenant in tenants}
    parents = {pool.parent for path in paths.values() for pool in path}
    for tenant, path in paths.items():
        for pool in path:
            children.setdefault(pool.parent, {})[pool.name] = pool.weight if weighted else 1.0
        if tenant in parents:
            # Its own jobs compete with its parts.
            children.setdefault(tenant, {})[""] = 1.0
    found: dict[str, float] = {}
    for tenant, path in paths.items():
        share = 1.0
        for pool in path:
            share *= children[pool.parent][pool.name] / sum(children[pool.parent].values())
        if tenant in parents:
            share /= sum(children[tenant].values())
        found[tenant] = share
    return found
