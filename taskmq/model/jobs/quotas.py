"""Quotas: how much a tenant, or one of its users, may submit to the store and have running. Pure.

    a submitted job -> the quota of its tenant, and that of its owner ->
        room in both: it is created; else: it is refused with the limit, and when there is room again
    a job at its turn -> the same for running jobs ->
        room in both: it is dispatched; else: it waits, and others pass it

The usage of a quota holds this day's count and bytes (days of UTC), and the instant until which a rate is used up
(the generic cell rate algorithm: one number, whatever the rate). The store counts the waiting and the running jobs of
a tenant on demand.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, NoReturn, TypedDict, Unpack

import msgspec

from taskmq.errors import InvalidOption
from taskmq.model.units import DAY_MS

EVERYBODY: Final = "*"
"""The tenant, or the user, whose values apply to those without a quota of their own."""

OnLimit = Literal["refuse", "wait"]
_Limit = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
KEPT_DAYS: Final = 2
"""Days for which the usage of a past day is kept."""
_LONGEST: Final = 200
# Maximum of jobs examined in one lane, and in all lanes together.
_LOOKED_AT: Final = 500
_LOOKED_AT_TOGETHER: Final = 10_000


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of one tenant, or of one of its users. None means no limit.

    Attributes:
        tenant: its name; `*`: each tenant without a quota. Jobs without a tenant have the tenant "".
        user: the owner of the jobs; `*`: each without a quota. None: all jobs of the tenant together.
        queued: jobs that may wait for their turn at a time, for tenants only. Jobs that are not yet due do not count.
        a_day: jobs submitted a day, from midnight to midnight UTC.
        bytes: size of their bodies, a day.
        rate: jobs a second.
        burst: jobs that may be submitted at once within the rate; at least 1.
        running: jobs in flight (at the broker or at workers) at a time, in all queues. Others wait.
        on_limit: what happens to a job beyond the rate: `refuse` it, or create it and let it `wait` until the rate
            allows it.
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
        """Whether created jobs may have to wait for the quota."""
        return self.running is not None or self.on_limit == "wait"

    @property
    def name(self) -> str:
        """Name of the quota for people: its tenant, a slash, and its user."""
        return self.tenant if self.user is None else f"{self.tenant}/{self.user}"

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidOption(f"quota of {self.name!r}: {reason}")


class QuotaExcess(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a submission would exceed.

    Attributes:
        tenant, user: the quota's; the user is None if the limit is the tenant's.
        limit: the name of the limit.
        most: its value.
        until: ms since the epoch, when there is room again; None if that depends on the tenant's jobs.
        now: ms since the epoch, when the limit was checked.
    """

    tenant: str
    user: str | None
    limit: Literal["queued", "a_day", "bytes", "rate"]
    most: float
    until: int | None
    now: int


class QuotaUsage(msgspec.Struct, frozen=True):
    """Recent submissions under a quota.

    Attributes:
        day: the day, in days since the epoch, that `jobs` and `bytes` count.
        used_until: ms since the epoch; the rate is used up until then.
    """

    day: int = 0
    jobs: int = 0
    bytes: int = 0
    used_until: float = 0.0


class HeldBack(msgspec.Struct, frozen=True):
    """Tenants whose jobs may have to wait for a quota. False if there are none.

    Attributes:
        tenants: by name; `*`: all named tenants.
    """

    tenants: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.tenants)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self.tenants or (EVERYBODY in self.tenants and bool(tenant))


class Quotas(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Quotas of a store.

    Attributes:
        version: increases by 1 with every change; 0: never set.
        quotas: by `usage_name` of their tenant and user.
    """

    version: int = 0
    quotas: dict[str, Quota] = {}

    def __post_init__(self) -> None:
        for name, quota in self.quotas.items():
            if name != usage_name(quota.tenant, quota.user):
                raise InvalidOption(f"quota of {quota.name!r} is listed as {name!r}")

    def held_back(self) -> HeldBack:
        """Return the tenants whose jobs may have to wait, from all quotas."""
        return HeldBack(frozenset(quota.tenant for quota in self.quotas.values() if quota.holds_back))

    def find(self, tenant: str, user: str | None = None) -> Quota | None:
        """Return the quota of exactly this tenant and user."""
        return self.quotas.get(usage_name(tenant, user))

    def of(self, tenant: str, user: str = "") -> list[Quota]:
        """Return the quotas of a job of this tenant and owner, each with the tenant and user that it counts for."""
        if not self.quotas:
            return []
        found: list[Quota] = []
        # Jobs without a tenant are subject only to a quota that names the tenant "".
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
    """Return the key of the run usage of a quota; it begins with `usage_prefix` of the tenant."""
    return json.dumps([tenant, user, "runs"])


def read_quotas(content: str | bytes | None) -> Quotas:
    """Decode the stored quotas; None yields empty ones."""
    return Quotas() if content is None else msgspec.json.decode(content, type=Quotas)


def usage_name(tenant: str, user: str | None = None) -> str:
    """Return the unique key of the usage of a tenant, or of one of its users."""
    return json.dumps([tenant] if user is None else [tenant, user])


def usage_prefix(tenant: str) -> str:
    """Return the common prefix of the usage keys of a tenant and its users, which no other key has."""
    return usage_name(tenant).removesuffix("]")


class CountedJob(TypedDict):
    """Facts of a submitted job that quotas count: `size` in bytes; `is_queued`: whether it waits for its turn now."""

    tenant: str
    user: str
    size: int
    is_queued: bool


class QuotaBook:
    """Quotas of jobs that are submitted one after the other.

    Args:
        usage: by `usage_name`; a missing quota is unused.
        queued: number of jobs of these tenants that wait for their turn; needed if a quota limits it.
        now: ms since the epoch.

    Attributes:
        changed: usage that admitted jobs changed.
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
        """Count a job if it is within its limits; else return the first limit that it exceeds, and count nothing."""
        size, is_queued = job["size"], job["is_queued"]
        for quota in self._quotas.of(job["tenant"], job["user"]):
            excess = self._excess(quota, self._usage_of(quota), size=size, is_queued=is_queued)
            if excess is not None:
                return excess
        self.count(**job)
        return None

    def count(self, **job: Unpack[CountedJob]) -> None:
        """Count a job that exists already, even beyond its limits."""
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
        """Uncount a job that was not created: its key is taken, or a job that it depends on is unknown."""
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
        day = self._now // DAY_MS
        return usage if usage.day == day else QuotaUsage(day, 0, 0, usage.used_until)

    def _excess(self, quota: Quota, usage: QuotaUsage, *, size: int, is_queued: bool) -> QuotaExcess | None:
        midnight = (usage.day + 1) * DAY_MS
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
    """Quotas of ready jobs that are dispatched one after the other.

    Args:
        usage: by `run_name`; a missing quota is unused.
        running: number of jobs in flight, by tenant and owner.
        now: ms since the epoch.

    Attributes:
        changed: usage that dispatched jobs changed.
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
        """Count a job that may be dispatched; if it must wait, count nothing and return False."""
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
            after[name] = QuotaUsage(self._now // DAY_MS, usage.jobs + 1, 0, used_until)
        self.changed |= after
        self._running[tenant, None] += 1
        self._running[tenant, user] += 1
        return True

    def admit_all(self, owners: Iterable[tuple[str, str]]) -> bool:
        """Count jobs that are dispatched together, by tenant and user; if they must wait, return False."""
        changed, running = dict(self.changed), self._running.copy()
        if all(self.admit(tenant=tenant, user=user) for tenant, user in owners):
            return True
        self.changed, self._running = changed, running
        return False


def looked_at(quotas: Quotas, picks: Sequence[tuple[str, int]]) -> list[int]:
    """Return how many of each lane's first jobs to examine for ones that may be dispatched.

    If no quota distinguishes the users of a tenant, one job that must wait means that all behind it must wait.

    Args:
        picks: tenant of each lane, and how many of its jobs to dispatch.
    """
    parted = {quota.tenant for quota in quotas.quotas.values() if quota.user is not None and quota.holds_back}
    deep = [tenant in parted or (EVERYBODY in parted and bool(tenant)) for tenant, _ in picks]
    most = min(_LOOKED_AT, _LOOKED_AT_TOGETHER // max(sum(deep), 1))
    return [max(count, most) if is_deep else count for (_, count), is_deep in zip(picks, deep, strict=True)]


def _free(quota: Quota, usage: QuotaUsage) -> float:
    """Return the instant from which the rate has room again, ms since the epoch."""
    assert quota.rate is not None
    return usage.used_until - (quota.burst - 1) * 1000 / quota.rate


def limited_tenants(quotas: Quotas, tenants: Sequence[str]) -> list[str]:
    """Return the tenants whose waiting jobs must be counted."""
    return sorted({tenant for tenant in tenants if any(each.queued is not None for each in quotas.of(tenant))})
