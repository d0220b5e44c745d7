"""Host nodes: machines that run jobs, or that others share out. Pure.

    reported  ->  available  ->  draining (an operator says so)
                  |    ^
  three beats missed  |  heard again
                  v    |
                 lost

A node's epoch increases when it is lost. That voids the allocations made on it before, and outdates a worker that
still runs under the old epoch.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from taskmq.errors import InvalidOption
from taskmq.model.resources import read_amounts
from taskmq.model.topology import check_queue_name, node_queue

HEARTBEAT_SECONDS: Final = 10.0
"""Interval at which workers with a node report it."""


def lost_after(heartbeat_seconds: float) -> int:
    """Return the ms of silence that mean three missed heartbeats; the third may be late by half an interval."""
    return round(heartbeat_seconds * 3_500)


LOST_AFTER_MS: Final = lost_after(HEARTBEAT_SECONDS)
"""Maximum silence of a worker's node."""

NodeState = Literal["available", "busy", "draining", "lost"]
"""States of a node:

- `available`: it gets jobs;
- `busy`: one of its resources is used up, or its owner says so;
- `draining`: an operator stopped new jobs; running ones continue;
- `lost`: it was silent for too long."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_MOST_LABELS: Final = 32
_LONGEST_LABEL: Final = 255
_MOST_RESOURCES: Final = 32
_LONGEST: Final = 255


class NodeTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The report of a node; a repeated report is a heartbeat.

    Attributes:
        name: unique.
        address: an IP address or a host name, for people.
        capacity: amounts that may be allocated; `memory` and `storage` in bytes.
        labels: such as region and zone, for jobs that require them.
        version: of taskmq on the node.
        lost_after: ms of silence until it is lost; None: never.
        runs_jobs: whether workers there run jobs that the scheduler places.
    """

    name: str
    address: str = ""
    capacity: dict[str, float] = {}
    labels: dict[str, str] = {}
    version: str = ""
    lost_after: int | None = None
    runs_jobs: bool = False


class HostNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the store keeps it. Instants are ms since the epoch, by the store's clock.

    Attributes:
        id: permanent while the node is known.
        told: its last report.
        used: the allocated part of its capacity.
        epoch: its registration in ms; increases whenever the node is lost.
        registered, heartbeat: times of the first and last report.
        is_busy: whether its owner reports it as busy.
        is_draining: whether an operator drains it.
        is_lost: whether it was silent for too long.
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
        """The unallocated part of its capacity."""
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
        """Whether new allocations are possible, given room."""
        return not (self.is_lost or self.is_draining or self.is_busy)


def check_node_name(name: str) -> str:
    """Return `name` if it is a valid node name.

    Raises:
        InvalidOption: it is not.
    """
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"node {name[:80]!r}: 1 to 128 letters, digits, '_', '.', ':' and '-', beginning with a letter or a digit"
        )
    check_queue_name(node_queue(name))
    return name


def check_labels(labels: Mapping[str, str], *, what: str) -> dict[str, str]:
    """Return the labels if a node can have them.

    Raises:
        InvalidOption: there are too many, or one is invalid; the message names `what`.
    """
    if len(labels) > _MOST_LABELS:
        raise InvalidOption(f"{what}: at most {_MOST_LABELS} labels are allowed, got {len(labels)}")
    for name, value in labels.items():
        if not _NAME.fullmatch(name) or not value.isprintable() or not 0 < len(value) <= _LONGEST_LABEL:
            raise InvalidOption(
                f"{what}: {name[:80]!r}={value[:80]!r} is not a label: a name of letters, digits, '_', '.', ':' and "
                f"'-', and 1 to {_LONGEST_LABEL} printable characters"
            )
    return dict(labels)


def checked_node(told: NodeTold) -> NodeTold:
    """Return a node's report with valid values, its amounts and labels sorted.

    Raises:
        InvalidOption: a name, an amount or a label is invalid; the message names the node.
    """
    check_node_name(told.name)
    what = f"node {told.name}"
    if len(told.capacity) > _MOST_RESOURCES:
        raise InvalidOption(f"{what}: at most {_MOST_RESOURCES} resources are allowed, got {len(told.capacity)}")
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
