"""Host nodes and resource allocations."""

from typing import Annotated, Literal

import msgspec

from taskmq.api.values import ShortText

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e18)] | Annotated[str, msgspec.Meta(max_length=32)]
"""A number. Memory and storage may be strings such as `16G`."""


class HostNodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A host node with its capacity and usage, or a host whose workers offer no resources.

    Attributes:
        node_id: permanent while the node is known; of a host whose workers offer no resources, its name.
        status: available, busy, draining or lost.
        capacity, used: amounts by name; memory and storage in bytes.
        version: the version of taskmq.
        app_versions: versions of the app's code that these worker processes run.
        runs_jobs: whether workers on the node run jobs that the scheduler places.
        epoch: the epoch of the reporting process, which grows with every restart; 0 without resources.
        workers: names of the worker processes on it that reported in the last 35 s.
        queues: the queues that they consume.
        slots: their maximum of concurrent runs; `running`: their current runs.
        cpu: cores that they used in the last ten seconds or more, without their child processes; `memory`: their
            resident memory in bytes.
    """

    node_id: str
    name: str
    ip_address: str
    status: str
    capacity: dict[str, float]
    used: dict[str, float]
    labels: dict[str, str]
    version: str
    app_versions: list[str]
    runs_jobs: bool
    epoch: int
    registered_at: str | None
    heartbeat_at: str | None
    workers: list[str]
    queues: list[str]
    slots: int
    running: int
    cpu: float
    memory: int


class NodeList(msgspec.Struct, frozen=True):
    """The nodes and the hosts with workers, ordered by name."""

    items: list[HostNodeView]


class RegisterBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that no worker reports.

    Attributes:
        capacity: amounts by name. Memory and storage may be strings such as `16G`.
        heartbeat_seconds: the interval of status updates. After three missed updates the node is lost. Default: no
            updates expected.
    """

    name: ShortText
    ip: ShortText = ""
    capacity: dict[str, Amount] = {}
    labels: dict[str, ShortText] = {}
    heartbeat_seconds: Annotated[float, msgspec.Meta(ge=1, le=86_400)] | None = None


class RegisteredView(msgspec.Struct, frozen=True, kw_only=True):
    """The id and name of a registered node."""

    node_id: str
    name: str
    status: str


class StatusBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node's new status. `node_id` is its id or name."""

    node_id: ShortText
    status: Literal["available", "busy", "draining"]


class AllocateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to allocate resources.

    Attributes:
        job_id: the caller's id of the job.
        node_id: the id or name of a node, or `any`.
        memory, storage: bytes, or strings such as `16G`.
        resources: amounts of other resources, by name.
        ttl_seconds: the time until the allocation expires. Default: it does not expire.
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
    """The allocation to release."""

    allocation_id: ShortText


class AllocationView(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation of a node's resources.

    Attributes:
        amounts: by name; memory and storage in bytes.
        task: the task of a placed job; "" for an allocation made by a caller.
        expires_at: when the allocation expires.
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
    """The usage in a period: totals and a page of allocations.

    Attributes:
        hours: amounts times hours, by name, of all matching allocations; `memory` in byte hours.
        allocations: the number of matching allocations.
        is_bounded: whether there are more than were counted.
        items: allocations, newest first.
        next: the `cursor` of the next page; None on the last page.
    """

    hours: dict[str, float]
    allocations: int
    is_bounded: bool
    items: list[AllocationView]
    next: str | None
