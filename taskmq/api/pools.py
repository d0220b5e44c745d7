"""Pools, queue policies and quotas."""

from typing import Annotated

import msgspec

from taskmq.api.values import ShortText
from taskmq.model.jobs.quotas import OnLimit
from taskmq.model.topology import Policy

_Amounts = dict[ShortText, Annotated[float, msgspec.Meta(ge=0, le=1e12)]]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool: a share of a queue's capacity.

    Attributes:
        pool: the tenant whose jobs belong to it; `*` for tenants without a pool.
        parent: the parent pool; None for the queue itself.
        min: guaranteed amounts, served first.
        max: amounts above which its jobs wait.
    """

    pool: str
    parent: str | None
    weight: float
    min: dict[str, float]
    max: dict[str, float]


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduling policy of a queue, which overrides the apps' setting."""

    queue: str
    policy: Policy
    strict: bool
    preempt_after: float = 5.0
    preempt_grace: float = 30.0
    preempt_most: int = 3


class PoolList(msgspec.Struct, frozen=True, kw_only=True):
    """Pools and policies. `version` grows by 1 with every change."""

    version: int
    items: list[PoolView]
    policies: list[PolicyView]


class PoolBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pool's settings. Omitted fields take their defaults."""

    parent: ShortText | None = None
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    min: _Amounts = {}
    max: _Amounts = {}


class PolicyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue's scheduling policy.

    Attributes:
        preempt_after: seconds below its guarantee after which a pool or class preempts runs.
        preempt_grace: seconds a preempted run has to stop.
        preempt_most: how often in a row a job may be preempted.
    """

    policy: Policy
    strict: bool = False
    preempt_after: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 5.0
    preempt_grace: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    preempt_most: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3


class BacklogView(msgspec.Struct, frozen=True, kw_only=True):
    """The stored jobs of a tenant that are due and not dispatched yet.

    Attributes:
        tenant: "" for jobs without a tenant.
        jobs: number of them. At most 100,000 ready jobs are counted in all, and as many that wait for a limit.
        oldest: when the first of them became due.
        first: the store's id of that job, which has this `task` and `queue`.
        reasons: why it waits, most important first.
        alternatives: actions that would let it start.
    """

    tenant: str
    jobs: int
    oldest: str | None
    first: str
    task: str
    queue: str
    reasons: list[str]
    alternatives: list[str]


class BacklogList(msgspec.Struct, frozen=True):
    """Backlogs of tenants, the one with the oldest job first."""

    items: list[BacklogView]


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """The quota of a tenant or user, and its usage since midnight UTC."""

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
    """Quotas, ordered by tenant and user."""

    items: list[QuotaView]


class QuotaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quota of a tenant or user. Omitted fields are unlimited.

    Attributes:
        queued: the maximum number of waiting jobs; only for tenants.
        a_day: jobs per day, from midnight to midnight UTC.
        bytes: total size of the job bodies per day.
        rate: jobs per second; `burst` of them may arrive at once.
        running: the maximum number of dispatched and running jobs; further jobs wait.
        on_limit: whether a job above the rate is refused, or waits until the rate allows it.
    """

    queued: _Count | None = None
    a_day: _Count | None = None
    bytes: _Count | None = None
    rate: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 1
    running: _Count | None = None
    on_limit: OnLimit = "refuse"
