"""Timers of one partition: read ahead, and fired when their time has come. One that is changed meanwhile stays."""

from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.jobs import DispatchStore, DueJob, JobStore, Lane
from taskmq.scheduler.firing.due_loop import DueLoop, FiringPace, StoreClock
from taskmq.scheduler.partitions import HeldLease
from taskmq.scheduler.status import SchedulerCounts

__all__ = ["Timers"]

_BATCH: Final = 500


class Timers:
    """Fires the timers of one partition: a `Service`.

    Args:
        pace: of the timers of all partitions of this process.
        fired: called with the lanes that have got jobs which are ready.
    """

    def __init__(
        self,
        store: JobStore,
        lease: HeldLease,
        clock: StoreClock,
        *,
        pace: FiringPace,
        fired: Callable[[set[Lane]], None],
        counts: SchedulerCounts,
    ) -> None:
        self._dispatching: DispatchStore = store.dispatching
        self._lease = lease
        self._fired = fired
        self._counts = counts
        self._loop = DueLoop(
            f"partition {lease.partition}: jobs whose time comes",
            clock=clock,
            pace=pace,
            due=self._due,
            fire=self._fire,
            batch=_BATCH,
        )

    def expect(self, seconds: float) -> None:
        """A job was given a time which is so far away."""
        self._loop.expect(seconds)

    def stop(self) -> None:
        """See `Service`."""
        self._loop.stop()

    async def run(self) -> None:
        """Fire timers that are due until `stop`."""
        await self._loop.run()

    async def _due(self, until: int, limit: int) -> list[DueJob]:
        return await self._dispatching.due(self._lease.partition, until=until, limit=limit)

    async def _fire(self, batch: Sequence[DueJob]) -> None:
        lanes = await self._dispatching.fire(self._lease.partition, self._lease.epoch, batch)
        self._counts.fired += len(batch)
        if lanes:
            self._fired(lanes)
