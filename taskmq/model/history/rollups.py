"""Figures of each minute: outcomes of runs, waiting times of jobs, durations of runs. Pure.

Times are counted in fixed buckets, two for each doubling from a millisecond up. So figures of any minutes, tasks and
queues can be added. A quantile of the sum is never too low and at most 41 % too high.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

import msgspec

from taskmq.model.telemetry.events import EXPIRED_REASON, LONGEST_MESSAGE, LONGEST_TRACEBACK, FailureEvent, JobEvent
from taskmq.model.units import DAY_MS, storable

MINUTE: Final = 60_000
QUARTER: Final = 15 * MINUTE
DAY: Final = DAY_MS
MISSED: Final = "missed"
"""Outcome of a task: occurrences of schedules that were not emitted in time, and never will be."""
EXPIRED: Final = "expired"
"""Outcome of a task: jobs that expired before they started.

Those that a worker found expired also count as cancelled.
"""
BUCKETS: Final = 60
"""Index of the last bucket, which holds everything from about nine days on."""
_PER_DOUBLING: Final = 2
_FIRST_BOUND: Final = 0.001
_FAILURES: Final = frozenset({"dead", "parked"})


def bucket_of(seconds: float) -> int:
    """Return the bucket of a time, from 0."""
    if seconds <= _FIRST_BOUND:
        return 0
    return min(math.ceil(math.log2(seconds / _FIRST_BOUND) * _PER_DOUBLING - 1e-9), BUCKETS - 1)


def bucket_bound(bucket: int) -> float:
    """Return the upper bound of a bucket in seconds; the last one holds longer times, too."""
    return _FIRST_BOUND * math.pow(2.0, bucket / _PER_DOUBLING)


class Buckets(msgspec.Struct):
    """Counts of times by bucket, and their sum in seconds. Empty buckets are omitted."""

    counts: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    total: float = 0.0

    @property
    def count(self) -> int:
        """Number of times in all buckets."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float | None:
        """Mean in seconds; None if there are none."""
        return self.total / self.count if self.counts else None

    def add(self, seconds: float) -> None:
        bucket = bucket_of(seconds)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.total += seconds

    def merge(self, other: "Buckets") -> None:
        """Add the times of another."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total += other.total

    def quantile(self, share: float) -> float | None:
        """Return an upper bound of a quantile in seconds, at most one bucket too high; None if there are no times.

        Args:
            share: 0 to 1.
        """
        if not self.counts:
            return None
        ordered = sorted(self.counts)
        seen = list(accumulate(self.counts[bucket] for bucket in ordered))
        wanted = min(max(math.ceil(share * seen[-1]), 1), seen[-1])
        return bucket_bound(ordered[bisect_left(seen, wanted)])


class RollupKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Minute, task, queue and tenant of a rollup. `minute` is its first ms since the epoch."""

    minute: int
    task: str
    queue: str
    tenant: str


class Rollup(msgspec.Struct):
    """The figures of one minute, task, queue and tenant.

    Attributes:
        outcomes: number of job events by name (`taskmq.model.telemetry.events`): started, succeeded, retried, dead...
        waited: times from due to the first start.
        ran: durations of ended runs.
        processor: processor seconds of the ended runs whose executors measure them.
    """

    key: RollupKey
    outcomes: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    waited: Buckets = msgspec.field(default_factory=Buckets)
    ran: Buckets = msgspec.field(default_factory=Buckets)
    processor: float = 0.0

    @classmethod
    def empty(cls) -> "Rollup":
        """Return the figures of a time without runs."""
        return cls(RollupKey(0, "", "", ""))

    @property
    def ended(self) -> int:
        """Number of jobs that ended, in any outcome."""
        return sum(self.outcomes.get(name, 0) for name in ("succeeded", "answered", "dead", "parked", "cancelled"))

    @property
    def failed(self) -> int:
        """Number of jobs that failed."""
        return sum(self.outcomes.get(name, 0) for name in _FAILURES)

    @property
    def failure_rate(self) -> float | None:
        """Failed jobs as a share of the ended ones; None if none ended."""
        return self.failed / self.ended if self.ended else None

    def add(self, event: JobEvent) -> None:
        """Count the run of an event."""
        self.outcomes[event.event] = self.outcomes.get(event.event, 0) + 1
        if event.event == "cancelled" and event.reason == EXPIRED_REASON:
            self.outcomes[EXPIRED] = self.outcomes.get(EXPIRED, 0) + 1
        if event.waited is not None:
            self.waited.add(event.waited)
        if event.seconds is not None:
            self.ran.add(event.seconds)
        self.processor += event.processor or 0.0

    def merge(self, other: "Rollup") -> None:
        """Add the figures of another rollup, whatever its key."""
        self.merge_outcomes(other)
        self.waited.merge(other.waited)
        self.ran.merge(other.ran)
        self.processor += other.processor

    def merge_outcomes(self, other: "Rollup") -> None:
        """Add another rollup's outcomes, but not its times."""
        for name, count in other.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + count


class RunFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job of the broker, as its worker reported it.

    Attributes:
        number: assigned by the store, increasing; 0 before.
        event: `dead`, or `parked`.
        reason: of a dead letter, see `taskmq.model.outcome.DeadReason`.
        message: the error message of a dead letter, redacted; "" if it is not kept.
        traceback: the end of its traceback, redacted; "" if it is not kept.
    """

    number: int = 0
    at: int
    job: str
    event: str
    task: str
    queue: str
    tenant: str = ""
    worker: str = ""
    attempt: int = 1
    seconds: float | None = None
    error: str = ""
    reason: str = ""
    message: str = ""
    traceback: str = ""


def minute_of(instant: int) -> int:
    """Return the first ms of an instant's minute."""
    return instant // MINUTE * MINUTE


def rolled_up(events: Iterable[JobEvent], into: dict[RollupKey, Rollup]) -> None:
    """Count events, each in its minute."""
    for event in events:
        key = RollupKey(minute_of(event.at), event.task, event.queue, event.tenant)
        found = into.get(key)
        if found is None:
            found = into[key] = Rollup(key)
        found.add(event)


def sum_rollups(rollups: Iterable[Rollup], *, step: int, by: tuple[str, ...]) -> Mapping[RollupKey, Rollup]:
    """Sum rollups over longer times.

    Args:
        step: length of each in ms; a multiple of a minute.
        by: labels to group by (`task`, `queue`, `tenant`); the others are "".
    """
    found: dict[RollupKey, Rollup] = {}
    for one in rollups:
        names = {name: getattr(one.key, name) if name in by else "" for name in ("task", "queue", "tenant")}
        key = RollupKey(one.key.minute // step * step, **names)
        whole = found.get(key)
        if whole is None:
            whole = found[key] = Rollup(key)
        whole.merge(one)
    return dict(sorted(found.items()))


def failure_of(event: JobEvent) -> RunFailure | None:
    """Return the failure to keep of an event: only failed jobs of the broker have one."""
    if event.is_stored or event.event not in _FAILURES:
        return None
    return RunFailure(
        at=event.at,
        job=event.job_id,
        event=event.event,
        task=event.task,
        queue=event.queue,
        tenant=event.tenant,
        worker=event.worker,
        attempt=event.attempt,
        seconds=event.seconds,
        error=event.error or "",
        reason=event.reason or "",
        message=storable(event.message[:LONGEST_MESSAGE]) if isinstance(event, FailureEvent) else "",
        traceback=storable(event.traceback[-LONGEST_TRACEBACK:]) if isinstance(event, FailureEvent) else "",
    )


def spans(since: int, until: int, step: int) -> list[tuple[int, int, int]]:
    """Split a time into spans that are read in minutes or in quarters of an hour, as long as the step allows."""
    first, last = -(-since // QUARTER) * QUARTER, until // QUARTER * QUARTER
    if step % QUARTER or first >= last:
        return [(since, until, MINUTE)]
    parts = [(since, first, MINUTE), (first, last, QUARTER), (last, until, MINUTE)]
    return [part for part in parts if part[0] < part[1]]
