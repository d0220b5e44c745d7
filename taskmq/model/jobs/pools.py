"""Policies of queues and pools of tenants: what operators say about whose turn it is. Pure.

    queue -> policy
    pool  -> its parent -> ... -> the queue: weight among its neighbours, a guaranteed minimum, a cap

The jobs of a tenant belong to the pool of the tenant's name; a tenant that has none is a pool by itself, with the
values of the pool `*` where there is one. Amounts are of jobs in flight (`slots`) or of what jobs that are placed on
nodes take of those, in each queue for itself.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NoReturn

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.resources import read_amounts
from taskmq.model.topology import CLASSES, POLICIES, Policy, PriorityClass
from taskmq.model.units import did_you_mean

__all__ = [
    "CLASS_SHARES",
    "EVERY_TENANT",
    "FAIR",
    "SLOTS_ASKED",
    "Amounts",
    "QueuePolicy",
    "Sharing",
    "TenantPool",
    "check_pools",
    "known_reason",
    "path_of",
    "pool_group",
    "preemption_reason",
    "read_sharing",
    "shares_of",
]

EVERY_TENANT: Final = "*"
"""The pool whose values hold for tenants that have no pool of their own."""
CLASS_SHARES: Final[Mapping[PriorityClass, int]] = {"high": 60, "medium": 30, "low": 10}

Amounts = Mapping[str, float]
SLOTS_ASKED: Final = "slots"
"""The resource that every job needs one of."""

_Share = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_LONGEST: Final = 200
_LONGEST_GRACE: Final = 86_400.0
_MOST_TIMES: Final = 1000


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the jobs of a queue take turns.

    Attributes:
        policy: see `Policy`.
        shares: of the capacity, of each priority class, as long as all have jobs.
        strict: the highest class that has jobs goes first, always, so lower ones may starve; for `priority`: who
            waits does not rise.
        ageing: seconds after which a job that waits in a `priority` queue counts one priority more.
        preempt_after: seconds for which a pool or class has less than it is guaranteed before runs give way to it.
        preempt_grace: seconds that a run has which is asked to.
        preempt_most: so often in a row a job gives way.
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
            raise InvalidOption(f"shares={self.shares!r}: a number above 0 for each of {', '.join(CLASSES)}")
        if self.ageing <= 0:
            raise InvalidOption(f"ageing={self.ageing!r}: seconds, more than 0")
        for option in ("preempt_after", "preempt_grace"):
            if not 0 <= getattr(self, option) <= _LONGEST_GRACE:
                raise InvalidOption(f"{option}={getattr(self, option)!r}: 0 to {_LONGEST_GRACE:g} seconds")
        if not 0 <= self.preempt_most <= _MOST_TIMES:
            raise InvalidOption(f"preempt_most={self.preempt_most!r}: 0 (never) to {_MOST_TIMES}")


FAIR: Final = QueuePolicy()
"""What a queue has by default."""


class TenantPool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A share of a queue's capacity.

    Attributes:
        name: the tenant whose jobs belong to it, or that of a pool of pools; `*`: see `EVERY_TENANT`.
        parent: the pool that it is a part of; None: of the queue itself.
        weight: beside its neighbours, in `weighted` queues. What one of them does not use is lent to the others, and
            taken back as runs end.
        min: amounts that it gets first whenever it has jobs; all minimums together get at most nine tenths.
        max: amounts above which its jobs wait.
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
        """It; for those who describe pools.

        Raises:
            InvalidOption: it has amounts of what cannot be a resource.
        """
        for option, amounts in (("min", self.min), ("max", self.max)):
            if some := {resource: amount for resource, amount in amounts.items() if amount}:
                read_amounts(some, what=f"pool {self.name!r}: {option}")
        return self

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidOption(f"pool {self.name!r}: {reason}")


class Sharing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What operators have said about turns, for everybody who uses a store.

    Attributes:
        version: grows by 1 with every change; 0: nothing was set.
        queues: policies, instead of those that apps describe.
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
    """Read what a store has kept; nothing was said where it has kept nothing."""
    if content is None:
        return Sharing()
    found = msgspec.json.decode(content)
    for policy in found.get("queues", {}).values():
        shares = policy.get("shares", {})
        if "default" in shares:
            # The name that the middle class had at first.
            shares["medium"] = shares.pop("default")
    return msgspec.convert(found, Sharing)


def check_pools(pools: Iterable[TenantPool]) -> dict[str, TenantPool]:
    """The pools by name.

    Raises:
        InvalidOption: two have one name, a parent is missing, or a pool is above itself.
    """
    found: dict[str, TenantPool] = {}
    for pool in pools:
        if pool.name in found:
            raise InvalidOption(f"pool {pool.name!r} is described twice")
        found[pool.name] = pool
    for pool in found.values():
        if pool.parent is not None and (pool.parent not in found or pool.parent == EVERY_TENANT):
            raise InvalidOption(f"pool {pool.name!r}: there is no pool {pool.parent!r} that it could be a part of")
        seen = {pool.name}
        above = pool.parent
        while above is not None:
            if above in seen:
                raise InvalidOption(f"pool {pool.name!r} is a part of itself: {' -> '.join(sorted(seen))}")
            seen.add(above)
            above = found[above].parent if above in found else None
    return found


def pool_group(name: str) -> str:
    """What people know a pool by that is owed something."""
    return f"pool {name}"


def preemption_reason(group: str) -> str:
    """Why a run is stopped, for its job's history: for the jobs of that pool or class."""
    return f"preempted by {group}"


def known_reason(reason: str, tenant: str) -> str:
    """A `preemption_reason` as the tenant of the job may know it: no pool of another tenant is named."""
    if reason.startswith(preemption_reason(pool_group(""))) and reason != preemption_reason(pool_group(tenant)):
        return preemption_reason("another pool")
    return reason


def path_of(tenant: str, pools: Mapping[str, TenantPool]) -> list[TenantPool]:
    """The pools of a tenant's jobs, the outermost first; the last one is its own."""
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
    """Which part of a queue each of these tenants is due, as long as all of them have jobs; together 1."""
    children: dict[str | None, dict[str, float]] = {}
    paths = {tenant: path_of(tenant, pools) for tenant in tenants}
    parents = {pool.parent for path in paths.values() for pool in path}
    for tenant, path in paths.items():
        for pool in path:
            children.setdefault(pool.parent, {})[pool.name] = pool.weight if weighted else 1.0
        if tenant in parents:
            # Its own jobs stand beside its parts.
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
