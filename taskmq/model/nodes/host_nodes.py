"""Host nodes: machines that run jobs, or that others share out. Pure.

    reported  ->  available  ->  draining (an operator says so)
                  |    ^
  three beats missed  |  heard again
                  v    |
                 lost

A node's epoch grows when it is lost: what was allocated on it before is void then, and a worker that still works
under it is late.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from taskmq.errors import InvalidOption
from taskmq.model.resources import read_amounts
from taskmq.model.topology import check_queue_name, node_queue

__all__ = [
    "HEARTBEAT_SECONDS",
    "LOST_AFTER_MS",
    "HostNode",
    "NodeState",
    "NodeTold",
    "check_labels",
    "check_node_name",
    "checked_node",
    "lost_after",
]

HEARTBEAT_SECONDS: Final = 10.0
"""Workers with a node report it so often."""


def lost_after(heartbeat_seconds: float) -> int:
    """Milliseconds of silence in which a node has missed three heartbeats; the third may come half of one late."""
    return round(heartbeat_seconds * 3_500)


LOST_AFTER_MS: Final = lost_after(HEARTBEAT_SECONDS)
"""For so long a node of a worker may be silent."""

NodeState = Literal["available", "busy", "draining", "lost"]
"""- `available`: it gets jobs;
- `busy`: nothing is free of something that it has, or its owner says so;
- `draining`: an operator has said that it gets no more; what runs there goes on;
- `lost`: it was not heard for too long."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_MOST_LABELS: Final = 32
_LONGEST_LABEL: Final = 255
_MOST_RESOURCES: Final = 32
_LONGEST: Final = 255


class NodeTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node says of itself; said again, it is a heartbeat.

    Attributes:
        name: unique.
        address: for people: an IP address or a host name.
        capacity: what may be allocated; `memory` and `storage` in bytes.
        labels: such as region and zone, for jobs that ask for them.
        version: of the taskmq there.
        lost_after: ms of silence after which it counts as lost; None: never.
        runs_jobs: workers there take jobs that the scheduler places.
    """

    name: str
    address: str = ""
    capacity: dict[str, float] = {}
    labels: dict[str, str] = {}
    version: str = ""
    lost_after: int | None = None
    runs_jobs: bool = False


class HostNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the store has it. Instants are ms since the epoch, by the store's clock.

    Attributes:
        id: its own, which it keeps as long as it is known.
        told: what it reported last.
        used: of its capacity, what is allocated.
        epoch: the time in ms when it was registered; grows each time that the node is lost.
        registered, heartbeat: when it was reported first and last.
        is_busy: its owner says that it takes nothing for now.
        is_draining: an operator wants it to get nothing more.
        is_lost: it was silent for too long.
    """

    id: str
    told: NodeTold
    used: dict[str, float] = {}
    epoch: int = 1
    registered: int = 0
    heartbeat: int = 0
    is_busy: bool = False
    is_draining: bool = False
    is_lost: bool = False

    @property
    def name(self) -> str:
        return self.told.name

    @property
    def free(self) -> dict[str, float]:
        """What is left of its capacity."""
        return {name: amount - self.used.get(name, 0.0) for name, amount in self.told.capacity.items()}

    @property
    def state(self) -> NodeState:
        if self.is_lost:
            return "lost"
        if self.is_draining:
            return "draining"
        is_full = any(self.free[name] <= 0 for name, amount in self.told.capacity.items() if amount > 0)
        return "busy" if self.is_busy or is_full else "available"

    @property
    def is_open(self) -> bool:
        """Whether something may be allocated there, where there is room."""
        return not (self.is_lost or self.is_draining or self.is_busy)


def check_node_name(name: str) -> str:
    """`name` itself.

    Raises:
        InvalidOption: no node can be called that.
    """
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"node {name!r}: 1 to 128 letters, digits, '_', '.', ':' and '-', beginning with a letter or a digit"
        )
    check_queue_name(node_queue(name))
    return name


def check_labels(labels: Mapping[str, str], *, what: str) -> dict[str, str]:
    """Return the labels if a node can have them.

    Raises:
        InvalidOption: too many, or one that cannot be; names `what`.
    """
    if len(labels) > _MOST_LABELS:
        raise InvalidOption(f"{what}: at most {_MOST_LABELS} labels, these are {len(labels)}")
    for name, value in labels.items():
        if not _NAME.fullmatch(name) or not value.isprintable() or not 0 < len(value) <= _LONGEST_LABEL:
            raise InvalidOption(
                f"{what}: {name!r}={value[:80]!r} is no label: a name of letters, digits, '_', '.', ':' and '-', and "
                f"1 to {_LONGEST_LABEL} printable characters"
            )
    return dict(labels)


def checked_node(told: NodeTold) -> NodeTold:
    """What a node says, in order.

    Raises:
        InvalidOption: a name, an amount or a label that cannot be; names the node.
    """
    check_node_name(told.name)
    what = f"node {told.name}"
    if len(told.capacity) > _MOST_RESOURCES:
        raise InvalidOption(f"{what}: at most {_MOST_RESOURCES} resources, these are {len(told.capacity)}")
    given = {name: amount for name, amount in told.capacity.items() if amount}
    capacity = read_amounts(given, what=what) if given else {}
    none = {name: 0.0 for name in told.capacity if name not in given}
    return replace(
        told,
        address=_short(told.address),
        version=_short(told.version),
        capacity=capacity | none,
        labels=check_labels(told.labels, what=what),
    )


def _short(text: str) -> str:
    return "".join(letter for letter in text[:_LONGEST] if letter.isprintable())
