"""Host nodes, and what is allocated of them."""

from typing import Annotated, Literal

import msgspec

from taskmq.api.values import ShortText

__all__ = [
    "AllocateBody",
    "AllocationView",
    "Amount",
    "HostNodeView",
    "NodeList",
    "RegisterBody",
    "RegisteredView",
    "ReleaseBody",
    "StatusBody",
    "UsageView",
]

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)] | Annotated[str, msgspec.Meta(max_length=32)]
"""A number; of memory and storage also a size such as `16G`."""


class HostNodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A host node as the API shows it.

    Attributes:
        status: available, busy, draining or lost.
        capacity, used: amounts by name; memory and storage in bytes.
        runs_jobs: workers there take jobs that the scheduler places.
        epoch: of the last start of what reports it; larger with each.
    """

    node_id: str
    name: str
    ip_address: str
    status: str
    capacity: dict[str, float]
    used: dict[str, float]
    labels: dict[str, str]
    version: str
    runs_jobs: bool
    epoch: int
    registered_at: str | None
    heartbeat_at: str | None


class NodeList(msgspec.Struct, frozen=True):
    """All nodes, by name."""

    items: list[HostNodeView]


class RegisterBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that no worker reports.

    Attributes:
        capacity: amounts by name: numbers, of memory and storage also such as `16G`.
        heartbeat_seconds: how often its status will be updated; three missed ones, and it is lost. Default: never.
    """

    name: ShortText
    ip: ShortText = ""
    capacity: dict[str, Amount] = {}
    labels: dict[str, ShortText] = {}
    heartbeat_seconds: Annotated[float, msgspec.Meta(ge=1, le=86_400)] | None = None


class RegisteredView(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is called from now on."""

    node_id: str
    name: str
    status: str


class StatusBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node is, by its id or name."""

    node_id: ShortText
    status: Literal["available", "busy", "draining"]


class AllocateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wanted, and for whom.

    Attributes:
        job_id: for whom, in the caller's words.
        node_id: id or name of a node, or `any`.
        memory, storage: bytes, or such as `16G`.
        resources: amounts of others, by name.
        ttl_seconds: it ends by itself after so long; default: when it is released.
    """

    job_id: ShortText = ""
    node_id: ShortText = "any"
    cpu: Amount = 0.0
    memory: Amount = 0.0
    storage: Amount = 0.0
    gpu: Amount = 0.0
    resources: dict[str, Amount] = {}
    ttl_seconds: Annotated[float, msgspec.Meta(gt=0, le=31_536_000)] | None = None


class ReleaseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which allocation is to end."""

    allocation_id: ShortText


class AllocationView(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a node that is taken.

    Attributes:
        amounts: by name; memory and storage in bytes.
        task: of a job that the scheduler has placed; "" of one by hand.
        expires_at: when it ends by itself.
    """

    allocation_id: str
    job_id: str
    node_id: str
    tenant: str
    task: str
    amounts: dict[str, float]
    status: Literal["allocated", "released"]
    start_time: str | None
    end_time: str | None
    expires_at: str | None


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """Sums up allocations of a time, and lists them page by page.

    Attributes:
        hours: amounts times hours, by name, of all that fit; `memory` in byte hours.
        allocations: how many these are.
        is_bounded: there are more than were counted.
        items: some of them, the newest first.
        next: what to say as `cursor` for the next page of items; None at the end.
    """

    hours: dict[str, float]
    allocations: int
    is_bounded: bool
    items: list[AllocationView]
    next: str | None
