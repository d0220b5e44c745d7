"""Books of quotas: they count jobs one after the other, and refuse those beyond a limit.

Submitters that use up every free place would keep steps waiting forever. So once a submission was admitted, a waiting
step claims the next place: submissions leave it free until shortly after the step has asked again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, Literal, NotRequired, TypedDict, Unpack

import msgspec

from taskmq.model.jobs.quotas.limits import (
    EVERYBODY,
    Quota,
    QuotaExcess,
    Quotas,
    QuotaUsage,
    run_name,
    step_name,
    usage_name,
)
from taskmq.model.units import DAY_MS

# Pause of the step that has claimed the next place, and how long later the place is left free, ms.
_CLAIM_PAUSE: Final = 200
_CLAIM_GRACE: Final = 1_000
# Longest pause of a waiting step, ms: it may miss a change of its quota for as long.
_LONGEST_PAUSE: Final = 60_000
# Maximum of jobs examined in one lane, and in all lanes together.
_LOOKED_AT: Final = 500
_LOOKED_AT_TOGETHER: Final = 10_000


class CountedJob(TypedDict):
    """Facts of a submitted job that quotas count.

    Attributes:
        size: in bytes.
        is_queued: whether it waits for its turn now.
        is_step: whether it is the job of a step.
    """

    tenant: str
    user: str
    size: int
    is_queued: bool
    is_step: NotRequired[bool]


class QuotaBook:
    """Quotas of jobs that are submitted one after the other.

    Args:
        usage: by `usage_name`, and claims of steps by `step_name`; a missing quota is unused.
        queued: number of jobs of these tenants that wait for their turn; needed if a quota limits it.
        now: ms since the epoch.

    Attributes:
        changed: usage and claims that changed.
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
        for quota in self._quotas.of(job["tenant"], job["user"]):
            claim = None if job.get("is_step") else self._find_claim(quota)
            excess = self._excess(quota, claim, size=job["size"], is_queued=job["is_queued"])
            if excess is not None:
                return excess
        self.count(**job)
        return None

    def postpone(self, excess: QuotaExcess, *, size: int, pause: int) -> int:
        """Return when the step whose job would exceed a limit asks again, ms since the epoch.

        If it is the turn of steps, and no other one has a claim, the step claims the next place.

        Args:
            pause: least pause without a claim, ms.
        """
        name = step_name(excess.tenant, excess.user)
        claim = self._find(name)
        is_claiming = bool(claim.jobs) and claim.used_until <= self._now
        earliest = max(excess.until or 0, self._now + (_CLAIM_PAUSE if is_claiming else pause))
        at = min(earliest, self._now + _LONGEST_PAUSE)
        if is_claiming:
            self.changed[name] = QuotaUsage(0, 1, size, at)
        return at

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
            self._pass_turn(quota, is_step=job.get("is_step", False))
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

    def _find(self, name: str) -> QuotaUsage:
        return self.changed.get(name) or self._usage.get(name) or QuotaUsage()

    def _find_claim(self, quota: Quota) -> QuotaUsage | None:
        """Return the claim of a step on the next place, unless it has expired.

        A claim has the size of its job, when the step asks, and whether a submission was admitted after a step.
        """
        claim = self._find(step_name(quota.tenant, quota.user))
        return claim if claim.used_until and self._now < claim.used_until + _CLAIM_GRACE else None

    def _pass_turn(self, quota: Quota, *, is_step: bool) -> None:
        """Let a step claim the next place after a submission; a step's job ends the claim."""
        name = step_name(quota.tenant, quota.user)
        claim = self._find(name)
        if is_step and claim != QuotaUsage():
            self.changed[name] = QuotaUsage()
        elif not is_step and name in self._usage and not claim.jobs:
            self.changed[name] = msgspec.structs.replace(claim, jobs=1)

    def _usage_of(self, quota: Quota) -> QuotaUsage:
        usage = self._find(usage_name(quota.tenant, quota.user))
        day = self._now // DAY_MS
        return usage if usage.day == day else QuotaUsage(day, 0, 0, usage.used_until)

    def _excess(self, quota: Quota, claim: QuotaUsage | None, *, size: int, is_queued: bool) -> QuotaExcess | None:
        usage, queued = self._usage_of(quota), self._queued.get(quota.tenant, 0)
        if claim is not None:
            queued += 1
            used_until = max(usage.used_until, self._now) + 1000 / (quota.rate or inf)
            usage = QuotaUsage(usage.day, usage.jobs + 1, usage.bytes + claim.bytes, used_until)
        midnight = (usage.day + 1) * DAY_MS
        if is_queued and quota.queued is not None and queued >= quota.queued:
            return self._over(quota, "queued", quota.queued, None)
        if quota.a_day is not None and usage.jobs >= quota.a_day:
            return self._over(quota, "a_day", quota.a_day, midnight)
        if quota.bytes is not None and usage.bytes + size > quota.bytes:
            return self._over(quota, "bytes", quota.bytes, midnight)
        if quota.rate is not None and quota.on_limit == "refuse" and (free := free_from(quota, usage)) > self._now:
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
            if free_from(quota, usage) > self._now:
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


def free_from(quota: Quota, usage: QuotaUsage) -> float:
    """Return the instant from which the rate has room again, ms since the epoch."""
    assert quota.rate is not None
    return usage.used_until - (quota.burst - 1) * 1000 / quota.rate


def queued_limits(quotas: Quotas, tenants: Iterable[str]) -> dict[str, int]:
    """Return the limits of waiting jobs, by those of these tenants that have one."""
    limits = ((tenant, each.queued) for tenant in sorted(set(tenants)) for each in quotas.of(tenant))
    return {tenant: limit for tenant, limit in limits if limit is not None}


def usage_names(quotas: Quotas, owners: Iterable[tuple[str, str]]) -> list[str]:
    """Return the keys of the usage of jobs of these tenants and owners, and of the claims of steps, sorted."""
    limits = (each for tenant, user in owners for each in quotas.of(tenant, user))
    return sorted({name(each.tenant, each.user) for each in limits for name in (usage_name, step_name)})
