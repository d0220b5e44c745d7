"""Metrics of workers, beats and schedulers as values, and the contract of exporters.

A package offers an exporter under the entry-point group `taskmq.metrics`: a function that takes a `Source` and
returns an `Exporter`. The process that owns the health port calls it for every request of `/metrics`.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

BOUNDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
)
"""Upper bounds of a histogram's buckets, seconds; a last bucket without a bound follows."""
_FIRST_BOUND: Final = BOUNDS[0]


class Histogram(msgspec.Struct):
    """Counts of values by bucket of `BOUNDS`, and their sum in seconds."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.total += seconds
        # Most runs are short.
        self.counts[0 if seconds <= _FIRST_BOUND else bisect_left(BOUNDS, seconds)] += 1

    def merge(self, other: "Histogram") -> None:
        """Add the values of another histogram."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Count(msgspec.Struct):
    """Counts of one task in one queue.

    Attributes:
        outcomes: runs by how they ended: the names of `taskmq.model.outcome`'s classes, in lower case.
        run: seconds from the start of a run to its outcome.
        waited: seconds from due to the first start.
    """

    task: str
    queue: str
    outcomes: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    run: Histogram = msgspec.field(default_factory=Histogram)
    waited: Histogram = msgspec.field(default_factory=Histogram)

    def count_success(self, seconds: float, waited: float | None) -> None:
        """Count a run that succeeded, with its duration, and with the waiting time if it was the job's first run."""
        outcomes, run = self.outcomes, self.run
        outcomes["succeeded"] = outcomes.get("succeeded", 0) + 1
        # Inlined instead of `run.add`: this runs for every message.
        run.total += seconds
        run.counts[0 if seconds <= _FIRST_BOUND else bisect_left(BOUNDS, seconds)] += 1
        if waited is not None:
            self.waited.add(max(waited, 0.0))

    @property
    def ended(self) -> int:
        """Number of ended runs."""
        return sum(self.outcomes.values())

    def merge(self, other: "Count") -> None:
        """Add another count of the same task and queue."""
        for name, number in other.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + number
        self.run.merge(other.run)
        self.waited.merge(other.waited)


class ProcessGauges(NamedTuple):
    """The last report of one worker process.

    Attributes:
        slot: its number, from 0; a replacement process has the same.
        unsettled: jobs that keep their slots because their outcomes cannot be settled.
        memory: resident bytes.
        loop_lag: seconds.
        cpu: cores used since the previous report, 0 to slightly above 1.
    """

    slot: int
    state: str
    slots: int
    running: int
    backlog: int
    abandoned: int
    unsettled: int
    memory: int
    descriptors: int
    loop_lag: float
    cpu: float


class Snapshot(NamedTuple):
    """Metrics of a supervisor at one moment.

    Attributes:
        counts: since the supervisor started; they only increase, even when processes are replaced.
        processes: processes that have reported.
        wanted: the target number of processes.
        ends: number of worker processes that ended unexpectedly, by cause: `exit`, `signal`, `out of memory`.
        queues: waiting messages by public queue name; empty if the broker was not asked.
    """

    version: str
    counts: list[Count]
    processes: list[ProcessGauges]
    wanted: int
    ends: dict[str, int]
    queues: dict[str, int]


class ScheduleCount(msgspec.Struct):
    """Counts of one task's occurrences that one beat or scheduler emitted.

    Attributes:
        emitted: occurrences that the broker confirmed, or that the store has as jobs, by kind: `due`, `catchup`,
            `backfill`, ...
        failed: occurrences that can never be published.
        late: seconds from due to emission; occurrences of a backfill are never late.
    """

    task: str
    emitted: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    failed: int = 0
    late: Histogram = msgspec.field(default_factory=Histogram)


class BeatSnapshot(NamedTuple):
    """Metrics of a beat at one moment.

    Attributes:
        counts: since it started.
        schedules: number of schedules that all beats together emit.
        state_silence: seconds since the state last answered; None: it never has.
    """

    version: str
    counts: list[ScheduleCount]
    schedules: int
    state_silence: float | None


class SchedulerSnapshot(NamedTuple):
    """Metrics of a scheduler at one moment. Counts only increase.

    Attributes:
        partitions: number of partitions that it holds.
        in_flight: jobs at the broker and at workers, by queue.
        dispatched: jobs published to the broker.
        fired: jobs that became due.
        lost: jobs whose run was lost; they were dispatched again or ended.
        reports: of workers, by result: `accepted`, `superseded`, `invented`, `unknown`, `malformed`.
        store_silence: seconds since the store last answered; None: it never has.
        schedules: occurrences of schedules, since it started.
        preempted: runs that were preempted.
        waiting: jobs that need a slot of a worker now, by queue and place: `store`, `broker`, `worker`.
    """

    version: str
    partitions: int
    in_flight: dict[str, int]
    dispatched: int
    fired: int
    lost: int
    reports: dict[str, int]
    store_silence: float | None
    schedules: Sequence[ScheduleCount] = ()
    preempted: int = 0
    waiting: Mapping[str, Mapping[str, int]] = {}


class RequestCount(msgspec.Struct):
    """Responses of one server to one operation of its API.

    Attributes:
        operation: the operation's name; "" for unknown paths.
        statuses: responses by status code.
        took: seconds until the response started.
    """

    operation: str
    statuses: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    took: Histogram = msgspec.field(default_factory=Histogram)


class ServerSnapshot(NamedTuple):
    """Metrics of a server at one moment. Counts only increase.

    Attributes:
        streams: open event streams.
    """

    version: str
    counts: list[RequestCount]
    streams: int


class Page(NamedTuple):
    """A response to a scrape."""

    content_type: str
    body: bytes


Source = Callable[[], Snapshot | BeatSnapshot | SchedulerSnapshot | ServerSnapshot]
"""Reads the current metrics of a worker's processes, a beat, a scheduler, or a server."""

Exporter = Callable[[str], Page]
"""Renders the current page, for the `Accept` header of the client."""
