"""Lanes of ready jobs: their heads, what waits in them, and the partitions of the store."""

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

PARTITIONS: Final = 8
"""Number of partitions of queues and timers, unless the store was created with another number (up to 64)."""

_QUEUES: Final = 4096


def partition_of(queue: str, partitions: int = PARTITIONS) -> int:
    """Return the partition of a queue, of this many."""
    return _hash_of(queue) % partitions


@lru_cache(_QUEUES)
def _hash_of(queue: str) -> int:
    return int.from_bytes(hashlib.sha256(queue.encode()).digest()[:8])


class Lane(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Ready jobs of one queue, priority and tenant; the earliest due is dispatched first."""

    queue: str
    priority: int
    tenant: str


class LaneHead(msgspec.Struct, frozen=True):
    """The first job of a lane: when it became due, and when it expires, ms since the epoch; None: never."""

    due: int
    expires: int | None = None


class WaitingLane(NamedTuple):
    """Ready jobs of a queue with one priority and tenant.

    Attributes:
        jobs: number of them.
        earlier: number of those that became due before the job in question; of a `priority` queue whose jobs rise
            while they wait, of those that precede it.
    """

    priority: int
    tenant: str
    jobs: int
    earlier: int


class QueueBacklog(msgspec.Struct, frozen=True):
    """The jobs of a queue that are due and not dispatched yet.

    Attributes:
        count: how many there are, in lanes and behind gates; the number that was asked for if there are more.
        oldest: when the first of the counted jobs became due, ms since the epoch.
    """

    count: int
    oldest: int


class TenantBacklog(NamedTuple):
    """The jobs of a tenant that are due and not dispatched yet.

    Attributes:
        jobs: number of counted jobs.
        oldest: when the first of them became due, ms since the epoch.
        first: id of that job.
    """

    tenant: str
    jobs: int
    oldest: int
    first: str


class PartitionHold(NamedTuple):
    """A partition that a scheduler holds, and the epoch of its lease."""

    partition: int
    epoch: int


class Pick(msgspec.Struct, frozen=True):
    """A number of jobs of a lane to dispatch."""

    lane: Lane
    count: int
