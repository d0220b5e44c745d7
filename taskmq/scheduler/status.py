"""Metrics of a scheduler for monitoring, and its status for people."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from taskmq.app import TaskMQ
from taskmq.contracts.stores import Coordinator, Lease, member_key
from taskmq.durable.lease_terms import acquire_in_term
from taskmq.durable.service import pause
from taskmq.errors import StateUnavailable, StoreUnavailable, TaskMQError
from taskmq.model.telemetry.metrics import SchedulerSnapshot
from taskmq.model.telemetry.scheduler_report import SCHEDULERS, SchedulerReport, encode_report
from taskmq.operations.queues import measure_demands
from taskmq.schedules.status import OccurrenceCounts
from taskmq.version import VERSION

_log = logging.getLogger("taskmq.scheduler")

_PERIOD: Final = 2.5
_LEASE: Final = 15.0
# Rates are averages over four periods.
_SAMPLES: Final = 5
_DEMAND_PERIOD: Final = 5.0
# Longer than the usual intervals of scrapes.
_SCRAPED: Final = 150.0


class SchedulerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a scheduler. Sent as JSON; fields may be added.

    Attributes:
        started: ms since the epoch.
        partitions: partitions that it holds, out of `of`.
        store_silence: seconds since the store last answered; None: it never has.
        in_flight: jobs at the broker and with workers, by queue.
        windows: most jobs in flight, by queue.
        paused: reasons why the broker refuses queues, by queue.
        dispatched: jobs dispatched to the broker since the start.
        fired: jobs that became due.
        reports: reports of workers by outcome: `accepted`, `superseded`, `invented`, `unknown`, `redelivered`,
            `malformed`.
        lost: lost jobs that were dispatched again or ended.
        preempted: runs that were asked to give way to others.
        occurrences: occurrences of schedules submitted since the start.
        occurrences_failed: occurrences that can never be submitted.
        refused: firings that had no effect because another scheduler held the partition.
    """

    version: str
    pid: int
    app: str
    started: int
    partitions: list[int]
    of: int
    store_silence: float | None
    in_flight: dict[str, int]
    windows: dict[str, int]
    paused: dict[str, str]
    dispatched: int
    fired: int
    reports: dict[str, int]
    lost: int
    occurrences: int = 0
    occurrences_failed: int = 0
    refused: int = 0
    preempted: int = 0


class SchedulerCounts:
    """Counts of one scheduler since its start.

    Attributes:
        dispatched: jobs taken out of the store.
        published: invitations that the broker has confirmed.
        fired: jobs that became due.
        lost: lost jobs that were given up.
        preempted: runs that were asked to give way to others.
        refused: firings of schedules that had no effect because another scheduler held the partition.
        lines: log lines that were stored.
        schedules: occurrences of schedules that became jobs.
        reports: reports of workers by outcome.
    """

    def __init__(self) -> None:
        self.dispatched = 0
        self.published = 0
        self.fired = 0
        self.lost = 0
        self.preempted = 0
        self.refused = 0
        self.lines = 0
        self.schedules = OccurrenceCounts()
        self.reports: Counter[str] = Counter()

    def snapshot(
        self,
        *,
        partitions: int,
        in_flight: dict[str, int],
        store_silence: float | None,
        waiting: Mapping[str, Mapping[str, int]],
    ) -> SchedulerSnapshot:
        """Return the current metrics."""
        return SchedulerSnapshot(
            version=VERSION,
            partitions=partitions,
            in_flight=in_flight,
            dispatched=self.dispatched,
            fired=self.fired,
            lost=self.lost,
            preempted=self.preempted,
            reports=dict(self.reports),
            store_silence=store_silence,
            schedules=self.schedules.by_task(),
            waiting=waiting,
        )


class SchedulerPresence:
    """A service that keeps a report of this scheduler in the store, under a lease, for operators.

    Args:
        read: returns the report, without rates.
        dispatched: returns the jobs dispatched so far, by partition held.
    """

    def __init__(
        self,
        leases: Coordinator,
        *,
        me: str,
        read: Callable[[], Awaitable[SchedulerReport]],
        dispatched: Callable[[], Mapping[int, int]],
    ) -> None:
        self._leases = leases
        self._me = me
        self._key = member_key(SCHEDULERS, me)
        self._read = read
        self._dispatched = dispatched
        self._token: int | None = None
        self._samples: deque[tuple[float, Mapping[int, int]]] = deque(maxlen=_SAMPLES)
        self._is_stopping = asyncio.Event()

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()

    async def run(self) -> None:
        """Renew the report until `stop`, then delete it."""
        self._samples.append((asyncio.get_running_loop().time(), {}))
        while True:
            try:
                await self._report()
            except (StateUnavailable, StoreUnavailable) as error:
                _log.debug("report of this scheduler not written, will retry: %s", error)
            if await pause(self._is_stopping, _PERIOD):
                break
        if self._token is not None:
            try:
                await self._leases.release(self._key, token=self._token)
            except (StateUnavailable, StoreUnavailable) as error:
                _log.debug("report of this scheduler not deleted, it expires by itself: %s", error)

    async def _report(self) -> None:
        note = encode_report(msgspec.structs.replace(await self._read(), rates=self._rates()))
        if self._token is not None:
            if await self._leases.renew(self._key, token=self._token, seconds=_LEASE, note=note):
                return
            self._token = None
        found = await acquire_in_term(self._leases, self._key, owner=self._me, seconds=_LEASE, note=note)
        # An existing lease was granted to this process by an answer that was lost.
        self._token = found.token if isinstance(found, Lease) else found

    def _rates(self) -> dict[int, float]:
        """Return the jobs dispatched per second by partition, over the last samples."""
        now, counts = asyncio.get_running_loop().time(), {**self._dispatched()}
        self._samples.append((now, counts))
        since, before = self._samples[0]
        # A partition that was acquired anew counts from 0 again.
        return {
            partition: round(max(count - before.get(partition, 0), 0) / (now - since), 2) if now > since else 0.0
            for partition, count in counts.items()
        }


class DemandGauge:
    """A service that counts the jobs of the app's queues that need a slot, while the metrics are scraped."""

    def __init__(self, app: TaskMQ) -> None:
        self._app = app
        self._waiting: Mapping[str, Mapping[str, int]] = {}
        self._wanted_until = 0.0
        self._waking = asyncio.Event()
        self._is_stopping = False

    def read(self) -> Mapping[str, Mapping[str, int]]:
        """Return the last counts by queue and place, and count for a while. Empty if they could not be counted."""
        now = asyncio.get_running_loop().time()
        if self._wanted_until <= now:
            self._waking.set()
        self._wanted_until = now + _SCRAPED
        return self._waiting

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping = True
        self._waking.set()

    async def run(self) -> None:
        """Count every five seconds while the counts are read, until `stop`."""
        while not self._is_stopping:
            self._waking.clear()
            if self._wanted_until > asyncio.get_running_loop().time():
                await self._count()
                await pause(self._waking, _DEMAND_PERIOD)
            else:
                self._waiting = {}
                await self._waking.wait()

    async def _count(self) -> None:
        names = [queue.name for queue in self._app.tasks.queues]
        try:
            found = await measure_demands(self._app, names) if names else {}
        except TaskMQError as error:
            _log.debug("waiting jobs not counted, will retry: %s", error)
            # A gap: an old number would scale workers wrongly.
            self._waiting = {}
            return
        self._waiting = {
            name: {"store": demand.stored or 0, "broker": demand.ready, "worker": demand.in_hand}
            for name, demand in found.items()
        }
