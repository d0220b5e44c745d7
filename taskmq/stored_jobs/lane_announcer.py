"""Announcing which lanes have got jobs, so that schedulers need not look for them.

    ready, ready, ready -> lanes --+--> announced at once, or 4 ms after the last time
                                   |
    the session closes ------------+

One caller that submits job after job would else announce each, which costs the broker about as much as the submission
costs the database; and a scheduler dispatches at most every 4 ms anyway.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from taskmq.contracts.broker import Broadcasting
from taskmq.contracts.jobs import JobStore, Lane, encode_lanes, ready_topic

__all__ = ["LaneAnnouncer"]

_PACE: Final = 0.004


class LaneAnnouncer:
    """Announces lanes of one store, for one loop.

    Args:
        announcer: the broker; None where it announces nothing.
    """

    def __init__(self, store: JobStore, announcer: Broadcasting | None) -> None:
        self._partition_of = store.dispatching.partition_of
        self._announcer = announcer
        self._loop = asyncio.get_running_loop()
        self._lanes: set[Lane] = set()
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, lanes: Iterable[Lane]) -> None:
        """These have got jobs that may be dispatched."""
        self._lanes.update(lanes)
        if self._timer is not None or not self._lanes:
            return
        if self._loop.time() >= self._next:
            self.announce()
        else:
            self._timer = self._loop.call_at(self._next, self.announce)

    def announce(self) -> None:
        """Announce now what waits for its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lanes, self._lanes = self._lanes, set()
        if not lanes or self._announcer is None:
            return
        self._next = self._loop.time() + _PACE
        partitions: dict[int, list[Lane]] = {}
        for lane in lanes:
            partitions.setdefault(self._partition_of(lane.queue), []).append(lane)
        for partition, its in partitions.items():
            self._announcer.announce(ready_topic(partition), encode_lanes(its))
