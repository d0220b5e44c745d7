"""Timers of one partition: jobs read ahead, and made ready when due. Jobs that changed meanwhile are skipped."""

from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.jobs import DispatchStore, DueJob, JobStore, Lane
from taskmq.scheduler.firing.due_loop import DueLoop, FiringPace, StoreClock
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.status import SchedulerCounts

_BATCH: Final = 500


class Timers:
    """A service that fires the timers of one partition.

    Args:
        pace: pace of the timers of all partitions of this process.
        on_ready: called with the lanes that got ready jobs.
    """

    def __init__(
        self,
        store: JobStore,
        lease: HeldLease,
        clock: StoreClock,
        *,
        pace: FiringPace,
        on_ready: Callable[[set[Lane]], None],
        counts: SchedulerCounts,
    ) -> None:
        self._dispatching: DispatchStore = store.dispatching
        self._lease = lease
        self._on_ready = on_ready
        self._counts = counts
        self._loop = DueLoop(
            f"partition {lease.partition}: due jobs",
            clock=clock,
            pace=pace,
            due=self._due,
            fire=self._fire,
            batch=_BATCH,
        )

    def expect(self, seconds: float) -> None:
        """Expect a job to become due in this many seconds."""
        self._loop.expect(seconds)

    def stop(self) -> None:
        """See `Service`."""
        self._loop.stop()

    async def run(self) -> None:
        """Fire due timers until `stop`."""
        await self._loop.run()

    async def _due(self, until: int, limit: int) -> list[DueJob]:
        return await self._dispatching.due(self._lease.partition, until=until, limit=limit)

    async def _fire(self, batch: Sequence[DueJob]) -> None:
        lanes = await self._dispatching.fire(self._lease.partition, self._lease.epoch, batch)
        self._counts.fired += len(batch)
        if lanes:
            self._on_ready(lanes)
