"""Quotas: how much a tenant, or one of its users, may submit to the store, and have running. Pure.

    a job that is submitted -> the quota of its tenant, and that of its owner ->
        room in both: it is made; else: refused, with the limit and until when
    a job whose turn it is  -> the same, as to what waits -> room in both: it goes; else: it waits, and others pass it

What has been submitted under a quota is in its usage: this day's count and bytes (days of UTC), and the instant until
which a rate is used up (the generic cell rate algorithm: one number, however high the rate). How many jobs of a
tenant wait for their turn, and how many are under way, the store counts when it is asked for.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, NoReturn, TypedDict, Unpack

import msgspec

from taskmq.errors import InvalidOption

__all__ = [
    "EVERYBODY",
    "KEPT_DAYS",
    "CountedJob",
    "HeldBack",
    "OnLimit",
    "Quota",
    "QuotaBook",
    "QuotaExcess",
    "QuotaUsage",
    "Quotas",
    "RunBook",
    "limited_tenants",
    "looked_at",
    "read_quotas",
    "run_name",
    "usage_name",
    "usage_prefix",
]

EVERYBODY: Final = "*"
"""The tenant, or the user, whose values hold for those that have no quota of their own."""

OnLimit = Literal["refuse", "wait"]
_Limit = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
KEPT_DAYS: Final = 2
"""So many days the usage of a day is kept behind it."""
_DAY: Final = 86_400_000
_LONGEST: Final = 200
# So many jobs of a lane are looked at, and of all lanes together.
_LOOKED_AT: Final = 500
_LOOKED_AT_TOGETHER: Final = 10_000


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one tenant, or one user of it, may submit. What is None has no limit.

    Attributes:
        tenant: whose; `*`: each tenant without a quota. Jobs without a tenant have the tenant "".
        user: the owner of the jobs; `*`: each without a quota. None: all jobs of the tenant together.
        queued: jobs that may wait for their turn at a time. Of tenants only. Those whose time has not come are not
            counted.
        a_day: jobs a day, from midnight to midnight UTC.
        bytes: of their bodies, a day.
        rate: jobs a second.
        burst: how many may come at once under the rate; at least 1.
        running: jobs that may be at the broker and with workers at a time, in all queues. Further ones wait.
        on_limit: what becomes of a job beyond the rate: it is refused, or made, and waits until the rate lets it go.
    """

    tenant: str
    user: str | None = None
    queued: _Limit | None = None
    a_day: _Limit | None = None
    bytes: _Limit | None = None
    rate: _Rate | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 1
    running: _Limit | None = None
    on_limit: OnLimit = "refuse"

    def __post_init__(self) -> None:
        for name in (self.tenant, self.user or ""):
            if len(name.encode(errors="replace")) > _LONGEST or not name.isprintable():
                self._refuse(f"a name has at most {_LONGEST} printable bytes")
        for option in ("queued", "a_day", "bytes", "running"):
            value = getattr(self, option)
            if value is not None and not 0 <= value <= 2**53:
                self._refuse(f"{option}={value!r}: a whole number from 0")
        if self.rate is not None and not 0 < self.rate <= 1e6:
            self._refuse(f"rate={self.rate!r}: jobs a second, above 0 and up to 1,000,000")
        if not 1 <= self.burst <= 10**9:
            self._refuse(f"burst={self.burst!r}: a whole number from 1")
        if self.queued is not None and self.user is not None:
            self._refuse("queued is counted of tenants, not of users")
        if self.on_limit not in ("refuse", "wait"):
            self._refuse(f"on_limit={self.on_limit!r}: refuse or wait")
        if self.on_limit == "wait" and self.rate is None:
            self._refuse("on_limit='wait' is for a rate: running waits in any case, all else is refused")

    @property
    def holds_back(self) -> bool:
        """Whether jobs wait for it, that have been made."""
        return self.running is not None or self.on_limit == "wait"

    @property
    def name(self) -> str:
        """The quota, for people: its tenant, and its user behind a slash."""
        return self.tenant if self.user is None else f"{self.tenant}/{self.user}"

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidOption(f"quota of {self.name!r}: {reason}")


class QuotaExcess(msgspec.Struct, frozen=True, kw_only=True):
    """Which limit a submission would go beyond.

    Attributes:
        tenant, user: whose; the user is None where the limit is that of the tenant.
        limit: which.
        most: what it is.
        until: ms since the epoch, from when on there is room again; None where that depends on the tenant's jobs.
        now: ms since the epoch, when this was found.
    """

    tenant: str
    user: str | None
    limit: Literal["queued", "a_day", "bytes", "rate"]
    most: float
    until: int | None
    now: int


class QuotaUsage(msgspec.Struct, frozen=True):
    """What was submitted under a quota of late.

    Attributes:
        day: days since the epoch, of which `jobs` and `bytes` are.
        used_until: ms since the epoch; the rate is used up until then.
    """

    day: int = 0
    jobs: int = 0
    bytes: int = 0
    used_until: float = 0.0


class HeldBack(msgspec.Struct, frozen=True):
    """The tenants of which a quota lets jobs wait. False where there are none.

    Attributes:
        tenants: by name; `*`: all that have a name.
    """

    tenants: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.tenants)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self.tenants or (EVERYBODY in self.tenants and bool(tenant))


class Quotas(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All quotas of a store.

    Attributes:
        version: grows by 1 with every change; 0: nothing was set.
        quotas: by `usage_name` of their tenant and user.
    """

    version: int = 0
    quotas: dict[str, Quota] = {}

    def __post_init__(self) -> None:
        for name, quota in self.quotas.items():
            if name != usage_name(quota.tenant, quota.user):
                raise InvalidOption(f"quota of {quota.name!r} is listed as {name!r}")

    def held_back(self) -> HeldBack:
        """The tenants whose jobs may have to wait; it looks at every quota."""
        return HeldBack(frozenset(quota.tenant for quota in self.quotas.values() if quota.holds_back))

    def find(self, tenant: str, user: str | None = None) -> Quota | None:
        """The quota that was said for exactly these."""
        return self.quotas.get(usage_name(tenant, user))

    def of(self, tenant: str, user: str = "") -> list[Quota]:
        """The quotas of a job of this tenant and owner, with the tenant and the user that they are counted for."""
        if not self.quotas:
            return []
        found: list[Quota] = []
        # Jobs without a tenant belong to none: only a quota that names them holds for them.
        tenants = [tenant, EVERYBODY] if tenant else [tenant]
        if (own := self._first((each, None) for each in tenants)) is not None:
            found.append(msgspec.structs.replace(own, tenant=tenant))
        if user:
            names = ((each, name) for each in tenants for name in (user, EVERYBODY))
            if (own := self._first(names)) is not None:
                found.append(msgspec.structs.replace(own, tenant=tenant, user=user))
        return found

    def _first(self, names: Iterable[tuple[str, str | None]]) -> Quota | None:
        return next((quota for name in names if (quota := self.find(*name)) is not None), None)


def run_name(tenant: str, user: str | None = None) -> str:
    """What is kept under it of the jobs that a quota has let go; it begins with `usage_prefix` of the tenant."""
    return json.dumps([tenant, user, "runs"])


def read_quotas(content: str | bytes | None) -> Quotas:
    """What a store has kept; no quotas where it has kept nothing."""
    return Quotas() if content is None else msgspec.json.decode(content, type=Quotas)


def usage_name(tenant: str, user: str | None = None) -> str:
    """What the usage of a tenant, or of a user of it, is kept under; no two have one name."""
    return json.dumps([tenant] if user is None else [tenant, user])


def usage_prefix(tenant: str) -> str:
    """What the names of the usage of the tenant, and of all users of it, begin with, and no others."""
    return usage_name(tenant).removesuffix("]")


class CountedJob(TypedDict):
    """What quotas see of a job that is submitted: `size` in bytes; `is_queued`: it waits for its turn from now on."""

    tenant: str
    user: str
    size: int
    is_queued: bool


class QuotaBook:
    """The quotas of some jobs, as they are submitted one after the other.

    Args:
        usage: by `usage_name`; what is missing was not used yet.
        queued: how many jobs of these tenants wait for their turn; needed where a quota limits it.
        now: ms since the epoch.

    Attributes:
        changed: the usage after the jobs that were admitted, of those that have changed.
    """

    def __init__(
        self, quotas: Quotas, *, usage: Mapping[str, QuotaUsage], queued: Mapping[str, int], now: int
    ) -> None:
        self.changed: dict[str, QuotaUsage] = {}
        self._quotas = quotas
        self._usage = usage
        self._queued = dict(queued)
        self._now = now

    def admit(self, **job: Unpack[CountedJob]) -> QuotaExcess | None:
        """Count a job in; or the first limit beyond which it would be, and nothing is counted."""
        size, is_queued = job["size"], job["is_queued"]
        for quota in self._quotas.of(job["tenant"], job["user"]):
            excess = self._excess(quota, self._usage_of(quota), size=size, is_queued=is_queued)
            if excess is not None:
                return excess
        self.count(**job)
        return None

    def count(self, **job: Unpack[CountedJob]) -> None:
        """Count a job in that is made already, also beyond its limits."""
        tenant, size = job["tenant"], job["size"]
        quotas = self._quotas.of(tenant, job["user"])
        for quota in quotas:
            usage = self._usage_of(quota)
            used_until = usage.used_until
            if quota.rate is not None and quota.on_limit == "refuse":
                used_until = max(used_until, self._now) + 1000 / quota.rate
            name = usage_name(quota.tenant, quota.user)
            self.changed[name] = QuotaUsage(usage.day, usage.jobs + 1, usage.bytes + size, used_until)
        if quotas and job["is_queued"]:
            self._queued[tenant] = self._queued.get(tenant, 0) + 1

    def take_back(self, **job: Unpack[CountedJob]) -> None:
        """Uncount a job that was not made: another one has its key, or a job that it depends on is unknown."""
        tenant, size = job["tenant"], job["size"]
        quotas = self._quotas.of(tenant, job["user"])
        for quota in quotas:
            usage = self.changed[name := usage_name(quota.tenant, quota.user)]
            used_until = usage.used_until
            if quota.rate is not None and quota.on_limit == "refuse":
                used_until -= 1000 / quota.rate
            self.changed[name] = QuotaUsage(usage.day, usage.jobs - 1, usage.bytes - size, used_until)
        if quotas and job["is_queued"]:
            self._queued[tenant] -= 1

    def _usage_of(self, quota: Quota) -> QuotaUsage:
        name = usage_name(quota.tenant, quota.user)
        usage = self.changed.get(name) or self._usage.get(name) or QuotaUsage()
        day = self._now // _DAY
        return usage if usage.day == day else QuotaUsage(day, 0, 0, usage.used_until)

    def _excess(self, quota: Quota, usage: QuotaUsage, *, size: int, is_queued: bool) -> QuotaExcess | None:
        midnight = (usage.day + 1) * _DAY
        if is_queued and quota.queued is not None and self._queued.get(quota.tenant, 0) >= quota.queued:
            return self._over(quota, "queued", quota.queued, None)
        if quota.a_day is not None and usage.jobs >= quota.a_day:
            return self._over(quota, "a_day", quota.a_day, midnight)
        if quota.bytes is not None and usage.bytes + size > quota.bytes:
            return self._over(quota, "bytes", quota.bytes, midnight)
        if quota.rate is not None and quota.on_limit == "refuse" and (free := _free(quota, usage)) > self._now:
            return self._over(quota, "rate", quota.rate, int(free) + 1)
        return None

    def _over(
        self, quota: Quota, limit: Literal["queued", "a_day", "bytes", "rate"], most: float, until: int | None
    ) -> QuotaExcess:
        return QuotaExcess(tenant=quota.tenant, user=quota.user, limit=limit, most=most, until=until, now=self._now)


class RunBook:
    """The quotas of jobs that are ready, as they go one after the other.

    Args:
        usage: by `run_name`; what is missing was not used yet.
        running: how many jobs are under way, by tenant and owner.
        now: ms since the epoch.

    Attributes:
        changed: the usage after the jobs that go, of those that have changed.
    """

    def __init__(
        self,
        quotas: Quotas,
        *,
        usage: Mapping[str, QuotaUsage],
        running: Mapping[tuple[str, str], int],
        now: int,
    ) -> None:
        self.changed: dict[str, QuotaUsage] = {}
        self._quotas = quotas
        self._usage = usage
        self._running: Counter[tuple[str, str | None]] = Counter()
        for (tenant, user), count in running.items():
            self._running[tenant, None] += count
            self._running[tenant, user] += count
        self._now = now

    def admit(self, *, tenant: str, user: str) -> bool:
        """Count a job in that goes; False: it has to wait, and nothing is counted."""
        after: dict[str, QuotaUsage] = {}
        for quota in self._quotas.of(tenant, user):
            if quota.running is not None and self._running[tenant, quota.user] >= quota.running:
                return False
            if quota.rate is None or quota.on_limit == "refuse":
                continue
            name = run_name(tenant, quota.user)
            usage = self.changed.get(name) or self._usage.get(name) or QuotaUsage()
            if _free(quota, usage) > self._now:
                return False
            used_until = max(usage.used_until, self._now) + 1000 / quota.rate
            after[name] = QuotaUsage(self._now // _DAY, usage.jobs + 1, 0, used_until)
        self.changed |= after
        self._running[tenant, None] += 1
        self._running[tenant, user] += 1
        return True

    def admit_all(self, owners: Iterable[tuple[str, str]]) -> bool:
        """Count jobs in that go together, by tenant and user; False: they have to wait, and nothing is counted."""
        changed, running = dict(self.changed), self._running.copy()
        if all(self.admit(tenant=tenant, user=user) for tenant, user in owners):
            return True
        self.changed, self._running = changed, running
        return False


def looked_at(quotas: Quotas, picks: Sequence[tuple[str, int]]) -> list[int]:
    """How many of its first jobs each lane is looked at for those that may go.

    Where no quota tells the users of the tenant apart, one that has to wait says the same of all behind it.

    Args:
        picks: tenant of each lane, and how many of its jobs are to go.
    """
    parted = {quota.tenant for quota in quotas.quotas.values() if quota.user is not None and quota.holds_back}
    deep = [tenant in parted or (EVERYBODY in parted and bool(tenant)) for tenant, _ in picks]
    most = min(_LOOKED_AT, _LOOKED_AT_TOGETHER // max(sum(deep), 1))
    return [max(count, most) if is_deep else count for (_, count), is_deep in zip(picks, deep, strict=True)]


def _free(quota: Quota, usage: QuotaUsage) -> float:
    """From when on the rate has room again, ms since the epoch."""
    assert quota.rate is not None
    return usage.used_until - (quota.burst - 1) * 1000 / quota.rate


def limited_tenants(quotas: Quotas, tenants: Sequence[str]) -> list[str]:
    """Those of these tenants whose waiting jobs have to be counted."""
    return sorted({tenant for tenant in tenants if any(each.queued is not None for each in quotas.of(tenant))})
