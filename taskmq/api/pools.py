"""Pools, policies of queues, and quotas, as the API has them."""

from typing import Annotated

import msgspec

from taskmq.api.values import ShortText
from taskmq.model.jobs.quotas import OnLimit
from taskmq.model.topology import Policy

__all__ = [
    "PolicyBody",
    "PolicyView",
    "PoolBody",
    "PoolList",
    "PoolView",
    "QuotaBody",
    "QuotaList",
    "QuotaView",
]

_Amounts = dict[ShortText, Annotated[float, msgspec.Meta(ge=0, le=1e12)]]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A share of a queue's capacity.

    Attributes:
        pool: the tenant whose jobs belong to it; `*`: each that has no pool.
        parent: the pool that it is a part of; None: of the queue itself.
        min: amounts that it gets first.
        max: amounts above which its jobs wait.
    """

    pool: str
    parent: str | None
    weight: float
    min: dict[str, float]
    max: dict[str, float]


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """How the jobs of a queue take turns, whatever apps say."""

    queue: str
    policy: Policy
    strict: bool
    preempt_after: float = 5.0
    preempt_grace: float = 30.0
    preempt_most: int = 3


class PoolList(msgspec.Struct, frozen=True, kw_only=True):
    """Pools and policies; `version` grows by 1 with every change."""

    version: int
    items: list[PoolView]
    policies: list[PolicyView]


class PoolBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a pool is to be; what is left out has its default."""

    parent: ShortText | None = None
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    min: _Amounts = {}
    max: _Amounts = {}


class PolicyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By which policy a queue is to go.

    Attributes:
        preempt_after: seconds for which a pool or class has less than it is guaranteed before runs give way to it.
        preempt_grace: seconds that a run has which is asked to.
        preempt_most: so often in a row a job gives way.
    """

    policy: Policy
    strict: bool = False
    preempt_after: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 5.0
    preempt_grace: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    preempt_most: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tenant, or a user of it, may submit, and what of it is used up since midnight UTC."""

    tenant: str
    user: str | None
    queued: int | None
    a_day: int | None
    bytes: int | None
    rate: float | None
    burst: int
    running: int | None
    on_limit: OnLimit
    jobs_today: int
    bytes_today: int


class QuotaList(msgspec.Struct, frozen=True):
    """Quotas, by tenant and user."""

    items: list[QuotaView]


class QuotaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tenant or user may submit; what is left out has no limit.

    Attributes:
        queued: jobs that may wait for their turn at a time; of tenants only.
        a_day: jobs, from midnight to midnight UTC.
        bytes: of their bodies, in the same time.
        rate: jobs a second, of which `burst` may come at once.
        running: jobs that may be at the broker and with workers at a time; further ones wait.
        on_limit: whether a job beyond the rate is refused, or waits until the rate lets it go.
    """

    queued: _Count | None = None
    a_day: _Count | None = None
    bytes: _Count | None = None
    rate: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 1
    running: _Count | None = None
    on_limit: OnLimit = "refuse"
