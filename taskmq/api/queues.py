"""Queues, and what empties, pauses and resumes them; pools, policies and quotas, by which jobs come to them."""

from typing import Annotated

import msgspec

from taskmq.api.values import Note, ShortText
from taskmq.model.topology import Policy

__all__ = [
    "PauseBody",
    "PolicyBody",
    "PolicyView",
    "PoolBody",
    "PoolList",
    "PoolView",
    "PurgeBody",
    "PurgedView",
    "QueueLine",
    "QueueLines",
    "QueuePauseView",
    "QueueView",
    "QuotaBody",
    "QuotaList",
    "QuotaView",
    "ResumedView",
]

_Amounts = dict[ShortText, Annotated[float, msgspec.Meta(ge=0, le=1e12)]]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at the broker.

    Attributes:
        ready: messages that wait for a worker.
        in_hand: messages in workers' hands; None where nobody can tell.
        is_paused: nothing of the queue is started; None where nobody can tell.
    """

    queue: str
    ready: int
    in_hand: int | None
    consumers: int
    is_paused: bool | None


class QueueLines(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, and how many jobs and retries wait for their time in all of them."""

    items: list[QueueLine]
    delayed: int


class QueuePauseView(msgspec.Struct, frozen=True, kw_only=True):
    """Since when and why a queue is paused."""

    since: str | None
    note: str


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one queue.

    Attributes:
        kind: quorum or classic.
        delayed: jobs and retries that wait for their time; None where the broker does not tell whose they are.
        dead: dead letters; None where the queue does not exist yet.
    """

    queue: str
    kind: str
    ready: int
    in_hand: int
    delayed: int | None
    dead: int | None
    consumers: int
    paused: QueuePauseView | None
    tasks: list[str]
    workers: list[str]


class PauseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a queue is paused, for others to see."""

    note: Note = ""


class PurgeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of what is emptied, once more: what is purged is gone."""

    name: ShortText


class PurgedView(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were deleted."""

    purged: int


class ResumedView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the queue was paused before."""

    was_paused: bool


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A share of a queue's capacity.

    Attributes:
        pool: the tenant whose jobs belong to it; `*`: each that has none of its own.
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
    """By which policy a queue is to go."""

    policy: Policy
    strict: bool = False


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """How much a tenant, or a user of it, may submit, and what of it is used up since midnight UTC."""

    tenant: str
    user: str | None
    queued: int | None
    a_day: int | None
    bytes: int | None
    rate: float | None
    burst: int
    jobs_today: int
    bytes_today: int


class QuotaList(msgspec.Struct, frozen=True):
    """Quotas, by tenant and user."""

    items: list[QuotaView]


class QuotaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody may submit; what is left out has no limit.

    Attributes:
        queued: jobs that may wait for their turn at a time; of tenants only.
        a_day: jobs, from midnight to midnight UTC.
        bytes: of their bodies, in the same time.
        rate: jobs a second, of which `burst` may come at once.
    """

    queued: _Count | None = None
    a_day: _Count | None = None
    bytes: _Count | None = None
    rate: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=10**9)] = 1
