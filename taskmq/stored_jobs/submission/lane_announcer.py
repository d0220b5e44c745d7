"""Announcement of lanes with new jobs, so that schedulers need not poll for them.

    add, add, add -> lanes --+--> announced at once, or 4 ms after the last announcement
                                   |                      (10 ms, at more than 500 new jobs a second)
    the session closes ------------+

Announcing every job of a busy caller would cost the broker about as much as the submission costs the database. A
scheduler dispatches at most every 4 ms anyway. At a high rate, larger batches cost every process less, and leave more
processor time to the submissions.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import JobStore, Lane, encode_lanes, ready_topic

_PACE: Final = 0.004
_BUSY_PACE: Final = 0.01
_BUSY_RATE: Final = 500.0


class LaneAnnouncer:
    """Announcer of a store's lanes, for one event loop.

    Args:
        announcer: the broker; None if it has no broadcasts.
    """

    def __init__(self, store: JobStore, announcer: Broadcasting | None) -> None:
        self._partition_of = store.dispatching.partition_of
        self._announcer = announcer
        self._loop = asyncio.get_running_loop()
        self._lanes: set[Lane] = set()
        self._jobs = 0
        self._pace = _PACE
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, lanes: Iterable[Lane], *, jobs: int = 1) -> None:
        """Announce lanes with jobs that may be dispatched, now or within 10 ms.

        Args:
            jobs: the number of these jobs.
        """
        self._lanes.update(lanes)
        if not self._lanes:
            return
        self._jobs += jobs
        if self._timer is not None:
            return
        if self._loop.time() >= self._next:
            self.announce()
        else:
            self._timer = self._loop.call_at(self._next, self.announce)

    def announce(self) -> None:
        """Announce all pending lanes now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lanes, self._lanes = self._lanes, set()
        if not lanes or self._announcer is None:
            return
        self._pace = _BUSY_PACE if self._jobs > self._pace * _BUSY_RATE else _PACE
        self._next = self._loop.time() + self._pace
        self._jobs = 0
        partitions: dict[int, list[Lane]] = {}
        for lane in lanes:
            partitions.setdefault(self._partition_of(lane.queue), []).append(lane)
        for partition, group in partitions.items():
            self._announcer.announce(ready_topic(partition), encode_lanes(group))
