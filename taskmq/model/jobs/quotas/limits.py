"""Quotas, and what is recorded of their use."""

import json
from collections.abc import Iterable
from typing import Annotated, Final, Literal, NoReturn

import msgspec

from taskmq.errors import InvalidOption

EVERYBODY: Final = "*"
"""The tenant, or the user, whose values apply to those without a quota of their own."""

OnLimit = Literal["refuse", "wait"]
_Limit = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
KEPT_DAYS: Final = 2
"""Days for which the usage of a past day is kept."""
_LONGEST: Final = 200


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
        raise InvalidOption(f"quota of {self.name[:80]!r}: {reason}")


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
        return [
            msgspec.structs.replace(each, tenant=tenant, user=None if each.user is None else user)
            for each in self.stored_for(tenant, user)
        ]

    def stored_for(self, tenant: str, user: str = "") -> list[Quota]:
        """Return the quotas of a job of this tenant and owner as they are stored, in the order of `of`."""
        if not self.quotas:
            return []
        found: list[Quota] = []
        # Jobs without a tenant are subject only to a quota that names the tenant "".
        tenants = [tenant, EVERYBODY] if tenant else [tenant]
        if (own := self._first((each, None) for each in tenants)) is not None:
            found.append(own)
        if user:
            names = ((each, name) for each in tenants for name in (user, EVERYBODY))
            if (own := self._first(names)) is not None:
                found.append(own)
        return found

    def _first(self, names: Iterable[tuple[str, str | None]]) -> Quota | None:
        return next((quota for name in names if (quota := self.find(*name)) is not None), None)


def run_name(tenant: str, user: str | None = None) -> str:
    """Return the key of the run usage of a quota; it begins with `usage_prefix` of the tenant."""
    return json.dumps([tenant, user, "runs"])


def step_name(tenant: str, user: str | None = None) -> str:
    """Return the key of the claim that steps have on a quota; it begins with `usage_prefix` of the tenant."""
    return json.dumps([tenant, user, "steps"])


def read_quotas(content: str | bytes | None) -> Quotas:
    """Decode the stored quotas; None yields empty ones."""
    return Quotas() if content is None else msgspec.json.decode(content, type=Quotas)


def usage_name(tenant: str, user: str | None = None) -> str:
    """Return the unique key of the usage of a tenant, or of one of its users."""
    return json.dumps([tenant] if user is None else [tenant, user])


def usage_prefix(tenant: str) -> str:
    """Return the common prefix of the usage keys of a tenant and its users, which no other key has."""
    return usage_name(tenant).removesuffix("]")
