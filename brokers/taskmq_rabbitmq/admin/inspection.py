"""Queues and nodes from RabbitMQ's HTTP API, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskmq.errors import AccessDenied
from taskmq_rabbitmq.admin.definitions import found_in
from taskmq_rabbitmq.admin.http_api import (
    Management,
    ManagementNotFound,
    ManagementRefused,
    ManagementUnavailable,
    segment,
)
from taskmq_rabbitmq.admin.plan import Found

SETTLE_SECONDS: Final = 11.0
"""Seconds after which counts are up to date: more than two of RabbitMQ's counting intervals."""


_FOR_MEMBER: Final = 2
# Share of the handles that may be sockets.
_SOCKETS_SHARE: Final = 0.9
_SOCKETS_LESS: Final = 2


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue as the HTTP API reports it. Counts may be five seconds old.

    Attributes:
        kind: `quorum`, `classic`, `stream`.
        policy: name of the policy that applies; None: there is none.
        effective_policy: policy and operator policy combined.
        messages: all messages in it; None: not counted yet, as in the first seconds of a queue.
        ready: messages that wait for a consumer.
        unsettled: messages delivered and not settled.
        dead_letters: messages that the broker's dead-letter worker holds until their targets have confirmed (quorum
            queues only).
        consumers: number of consumers.
        state: `running`, or the problem: `down`, `minority`, `stopped`.
        leader: the node of the leader; None for a classic queue.
        members: nodes that keep a copy.
        online: those members that are up.
    """

    name: str
    kind: str
    arguments: Mapping[str, Any]
    policy: str | None
    operator_policy: str | None
    effective_policy: Mapping[str, Any]
    messages: int | None
    ready: int | None
    unsettled: int | None
    dead_letters: int
    consumers: int | None
    state: str
    leader: str | None
    members: tuple[str, ...]
    online: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node of the cluster.

    Attributes:
        running: whether it is up and a member; otherwise the rest is False or empty.
        memory_alarm: whether it accepts no messages because it is short of memory.
        disk_alarm: whether it accepts no messages because it is short of disk.
        partitions: nodes that it cannot see.
        descriptors_used: open files and sockets; 0 if the version does not report it.
        descriptors: their limit.
        sockets_used: connections and listeners; 0 if the version does not report it.
        sockets: their limit.
        quorum_queues: members of quorum queues on it.
        reserved: file handles that it keeps free for them, which counts as used and is not in `descriptors_used`.
    """

    name: str
    running: bool
    memory_alarm: bool
    disk_alarm: bool
    partitions: tuple[str, ...]
    descriptors_used: int = 0
    descriptors: int = 0
    sockets_used: int = 0
    sockets: int = 0
    quorum_queues: int = 0
    reserved: int = 0

    @property
    def handles(self) -> int:
        """File handles that a node before 4.0 grants; 0: it does not count them, or has reserved none."""
        return round((self.sockets + _SOCKETS_LESS) / _SOCKETS_SHARE) if self.sockets and self.reserved else 0

    @property
    def handles_used(self) -> int:
        """Part of `handles` that is reserved, or used by connections."""
        return self.reserved + self.sockets_used


async def fetch_topology(management: Management) -> Found:
    """Return the exchanges, queues and bindings of the virtual host."""
    vhost = management.vhost
    return found_in(
        await management.get(f"exchanges/{vhost}"),
        await management.get(f"queues/{vhost}", disable_stats="true"),
        await management.get(f"bindings/{vhost}"),
    )


async def fetch_queues(management: Management) -> list[QueueFacts]:
    """Return all queues of the virtual host."""
    return [_queue(item) for item in await management.get(f"queues/{management.vhost}")]


async def count_unsettled(management: Management) -> dict[str, int] | None:
    """Return unsettled messages by queue; None if the HTTP API does not report them."""
    try:
        return {queue.name: queue.unsettled or 0 for queue in await fetch_queues(management)}
    except (ManagementUnavailable, ManagementRefused, AccessDenied):
        return None


async def fetch_queue(management: Management, queue: str) -> QueueFacts | None:
    """Return one queue; None if no queue has that name."""
    try:
        return _queue(await management.get(f"queues/{management.vhost}/{segment(queue)}"))
    except ManagementNotFound:
        return None


async def fetch_nodes(management: Management) -> list[NodeFacts]:
    """Return all nodes of the cluster. The user needs the tag `monitoring`."""
    nodes = await management.get("nodes")
    # Only a node that counts handles limits sockets; then the queues of all virtual hosts matter.
    counts = any(_whole(item.get("sockets_total")) for item in nodes)
    queues: list[Any] = await management.get("queues", columns="type,leader,members") if counts else []
    return [
        NodeFacts(
            name=str(item["name"]),
            running=bool(item.get("running")),
            memory_alarm=bool(item.get("mem_alarm")),
            disk_alarm=bool(item.get("disk_free_alarm")),
            partitions=tuple(map(str, item.get("partitions") or ())),
            descriptors_used=_whole(item.get("fd_used")),
            descriptors=_whole(item.get("fd_total")),
            sockets_used=_whole(item.get("sockets_used")),
            sockets=_whole(item.get("sockets_total")),
            quorum_queues=sum(item["name"] in _members(queue) for queue in queues),
            reserved=sum(_reserved_handles(queue, item["name"]) for queue in queues),
        )
        for item in nodes
    ]


def _members(queue: Mapping[str, Any]) -> Sequence[str]:
    return queue.get("members") or () if queue.get("type") == "quorum" else ()


def _reserved_handles(queue: Mapping[str, Any], node: str) -> int:
    """Return the file handles that a node before 4.0 reserves for a quorum queue, from its source and measured."""
    members = _members(queue)
    if node not in members:
        return 0
    return _FOR_MEMBER + (len(members) if queue.get("leader") == node else 0)


def _whole(value: object) -> int:
    # Some platforms answer "unknown".
    return value if isinstance(value, int) else 0


def _queue(item: Mapping[str, Any]) -> QueueFacts:
    return QueueFacts(
        name=str(item["name"]),
        kind=str(item.get("type", "classic")),
        arguments=item.get("arguments") or {},
        policy=item.get("policy"),
        operator_policy=item.get("operator_policy"),
        effective_policy=item.get("effective_policy_definition") or {},
        messages=item.get("messages"),
        ready=item.get("messages_ready"),
        unsettled=item.get("messages_unacknowledged"),
        dead_letters=item.get("messages_dlx") or 0,
        consumers=item.get("consumers"),
        state=str(item.get("state", "running")),
        leader=item.get("leader"),
        members=tuple(item.get("members") or ()),
        online=tuple(item.get("online") or ()),
    )
