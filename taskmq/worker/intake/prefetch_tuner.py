"""Adaptive prefetch of each queue: see `taskmq.worker.prefetch`."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from taskmq.contracts.broker import Consumer
from taskmq.durable.service import pause
from taskmq.errors import BrokerUnavailable
from taskmq.model.topology import WorkQueue
from taskmq.worker.intake.slots import Slots
from taskmq.worker.prefetch import prefetch_for, prefetch_of, worth_changing
from taskmq.worker.run.stats import WorkerStats

_log = logging.getLogger("taskmq.worker")

_LOOK: Final = 10.0
# Pauses before the first changes: a worker of short runs with a backlog is limited by the round trips until then.
_EARLY: Final = (0.5, 1.0, 3.0)
# Minimum seconds between two changes of one queue.
_REST: Final = 60.0
_ENOUGH_RUNS: Final = 5
# Runs per slot that show in a short time that runs are short.
_ENOUGH_EARLY_RUNS: Final = 10


class PrefetchTuner:
    """Adapts the prefetch of each queue to the duration of its runs: a `Service`.

    It knows the present values, and the runs since the last check.
    """

    def __init__(
        self,
        consumer: Consumer,
        slots: Slots,
        queues: Sequence[WorkQueue],
        stats: WorkerStats,
    ) -> None:
        self._consumer = consumer
        self._slots = slots
        self._stats = stats
        # The next delivery of a shard would only wait here.
        self._queues = [queue for queue in queues if queue.ordered is None]
        first = prefetch_for(slots.concurrency, seconds=None)
        self._now = dict.fromkeys((queue.name for queue in self._queues), first)
        self._rested: dict[str, float] = {}
        self._monotonic = slots.monotonic
        self._clock = asyncio.get_running_loop().time
        self._seen: dict[str, tuple[int, float]] = {}
        self._is_stopping = asyncio.Event()

    async def run(self) -> None:
        """Check now and then, until `stop`."""
        for seconds in _EARLY:
            if await pause(self._is_stopping, seconds):
                return
            await self.look(enough=_ENOUGH_EARLY_RUNS * self._slots.concurrency)
        seconds = _LOOK - sum(_EARLY)
        while not await pause(self._is_stopping, seconds):
            await self.look()
            seconds = _LOOK

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def look(self, *, enough: int = _ENOUGH_RUNS) -> None:
        """Change the prefetch of queues with at least `enough` ended runs, or a long one, if that is worth it."""
        for queue in self._queues:
            name = queue.name
            if self._clock() < self._rested.get(name, 0.0):
                continue
            wanted = prefetch_for(self._slots.concurrency, seconds=self._mean(queue, enough))
            if worth_changing(self._now[name], wanted):
                await self._change(queue, wanted)

    def _mean(self, queue: WorkQueue, enough: int) -> float | None:
        """Return the mean seconds of runs since the last check, including current ones; None if there are few."""
        runs, seconds = 0, 0.0
        for (_, physical), count in self._stats.counts.items():
            if physical in queue.physical:
                runs += sum(count.run.counts)
                seconds += count.run.total
        before = self._seen.get(queue.name, (0, 0.0))
        if runs - before[0] >= enough:
            self._seen[queue.name] = (runs, seconds)
            return (seconds - before[1]) / (runs - before[0])
        now = self._monotonic()
        going = [now - began for one, began in self._stats.running.items() if one.delivery.queue in queue.physical]
        # Few ends and many runs: they take at least as long as the current ones have taken.
        return max(going) if going and max(going) >= _LOOK else None

    async def _change(self, queue: WorkQueue, wanted: int) -> None:
        before = self._now[queue.name]
        try:
            for physical in queue.physical:
                await self._consumer.resize(physical, prefetch_of(queue, physical, wanted))
        except BrokerUnavailable as error:
            _log.debug("queue %s: prefetch stays %d: %s", queue.name, before, error)
            return
        _log.debug("queue %s: prefetch changed to %d from %d", queue.name, wanted, before)
        self._now[queue.name] = wanted
        self._rested[queue.name] = self._clock() + _REST
        if wanted < before:
            for physical in queue.physical:
                self._slots.shed(
                    physical, keep=max(prefetch_of(queue, physical, wanted) - self._slots.concurrency, 0)
                )
