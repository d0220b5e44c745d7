"""Depths of queues over time, in a job store."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a queue in one minute, or the most of each place in a longer step.

    Attributes:
        at: the first ms of the minute or step.
        stored: due jobs of the store that are not dispatched yet.
        ready: messages at the broker that wait for a worker.
        in_hand: messages that workers hold.
    """

    queue: str
    at: int
    stored: int
    ready: int
    in_hand: int


class DepthStore(Protocol):
    """Depths that schedulers sampled, once a minute.

    Every method raises `StoreUnavailable` and `StoreMismatch` like those of `JobStore`.
    """

    async def add(self, depths: Sequence[QueueDepth]) -> None:
        """Store depths in one transaction. One that exists already, by its queue and minute, stays unchanged."""
        ...

    async def depths(
        self, *, since: int, until: int, step: int, queue: str | None = None, limit: int = 50_000
    ) -> list[QueueDepth]:
        """Return the first `limit` depths from `since` and before `until` by time and queue; None matches any queue.

        Args:
            step: ms; each step of a queue has the most of its minutes in each place.
        """
        ...

    async def forget(self, *, before: int, limit: int = 1_000) -> int:
        """Delete up to `limit` depths from before an instant (ms); return their number."""
        ...
