"""Metrics of a scheduler for monitoring, and its status for people."""

from collections import Counter

import msgspec

from taskmq.model.telemetry.metrics import SchedulerSnapshot
from taskmq.schedules.status import OccurrenceCounts
from taskmq.version import VERSION

__all__ = ["SchedulerCounts", "SchedulerStatus"]


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
        self, *, partitions: int, in_flight: dict[str, int], store_silence: float | None
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
        )
