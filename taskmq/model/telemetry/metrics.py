"""What can be counted about workers, beats and schedulers, as values, and the contract of what shows them.

A package offers an exporter under the entry-point group `taskmq.metrics`: a function that is given a `Source` and
returns an `Exporter`. The process whose health port it is asks it whenever `/metrics` is asked for.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

__all__ = [
    "BOUNDS",
    "BeatSnapshot",
    "Count",
    "Exporter",
    "Histogram",
    "Page",
    "ProcessGauges",
    "RequestCount",
    "ScheduleCount",
    "SchedulerSnapshot",
    "ServerSnapshot",
    "Snapshot",
    "Source",
]

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
    """How many values were in each bucket of `BOUNDS`, and their sum in seconds."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.total += seconds
        # Most runs are short.
        self.counts[0 if seconds <= _FIRST_BOUND else bisect_left(BOUNDS, seconds)] += 1

    def merge(self, other: "Histogram") -> None:
        """Add all of another's values."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Count(msgspec.Struct):
    """Of one task in one queue.

    Attributes:
        outcomes: runs by how they ended: the names of `taskmq.model.outcome`'s classes, in lower case.
        run: seconds from the start of a run to its outcome.
        waited: seconds from the moment when a job was due to its first start.
    """

    task: str
    queue: str
    outcomes: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    run: Histogram = msgspec.field(default_factory=Histogram)
    waited: Histogram = msgspec.field(default_factory=Histogram)

    def succeeded(self, seconds: float, waited: float | None) -> None:
        """One more run has succeeded, which took so long, and waited so long where it was a job's first."""
        outcomes, run = self.outcomes, self.run
        outcomes["succeeded"] = outcomes.get("succeeded", 0) + 1
        # Written out, and not `run.add`: this is done for every message.
        run.total += seconds
        run.counts[0 if seconds <= _FIRST_BOUND else bisect_left(BOUNDS, seconds)] += 1
        if waited is not None:
            self.waited.add(max(waited, 0.0))

    @property
    def ended(self) -> int:
        """Runs that have ended."""
        return sum(self.outcomes.values())

    def merge(self, other: "Count") -> None:
        """Add another's, which is of the same task and queue."""
        for name, number in other.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + number
        self.run.merge(other.run)
        self.waited.merge(other.waited)


class ProcessGauges(NamedTuple):
    """One worker process, as it last said.

    Attributes:
        slot: its number, from 0; a process that replaces another has the same.
        unsettled: jobs that keep their slots because their outcomes cannot be settled.
        memory: resident bytes.
        loop_lag: seconds.
        cpu: cores used since the report before, 0 to 1 and a bit.
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
    """All that is known at one moment.

    Attributes:
        counts: since the supervisor started; they only grow, also when processes are replaced.
        processes: those that have reported.
        wanted: how many processes there are to be.
        ends: how often worker processes ended before their time, by how: `exit`, `signal`, `out of memory`.
        queues: messages that wait, by queue as people name it; empty where the broker was not asked.
    """

    version: str
    counts: list[Count]
    processes: list[ProcessGauges]
    wanted: int
    ends: dict[str, int]
    queues: dict[str, int]


class ScheduleCount(msgspec.Struct):
    """What one beat or scheduler has emitted of one task.

    Attributes:
        emitted: occurrences that the broker has confirmed, or the store has as jobs, by kind: `due`, `catchup`,
            `backfill`, ...
        failed: those that can never be sent.
        late: seconds from when occurrences were due to that; those of a backfill are never late.
    """

    task: str
    emitted: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    failed: int = 0
    late: Histogram = msgspec.field(default_factory=Histogram)


class BeatSnapshot(NamedTuple):
    """All that is known about a beat at one moment.

    Attributes:
        counts: since it started.
        schedules: how many it emits, together with the others.
        state_silence: seconds since the state last answered; None: it never has.
    """

    version: str
    counts: list[ScheduleCount]
    schedules: int
    state_silence: float | None


class SchedulerSnapshot(NamedTuple):
    """All that is known about a scheduler at one moment. The counts only grow.

    Attributes:
        partitions: the number that it holds.
        in_flight: jobs at the broker and with workers, by queue.
        dispatched: jobs that were handed to the broker.
        fired: jobs whose time has come.
        lost: jobs that were given up, and dispatched again or ended.
        reports: of workers, by what they came to: `accepted`, `superseded`, `invented`, `unknown`, `malformed`.
        store_silence: seconds since the store last answered; None: it never has.
        schedules: occurrences of schedules, since it started.
        preempted: runs that were asked to give way to others.
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


class RequestCount(msgspec.Struct):
    """What one server has answered to one call of its API.

    Attributes:
        operation: the call; "" for paths that there are not.
        statuses: answers by their status.
        took: seconds until the answer began.
    """

    operation: str
    statuses: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    took: Histogram = msgspec.field(default_factory=Histogram)


class ServerSnapshot(NamedTuple):
    """All that is known about a server at one moment. The counts only grow.

    Attributes:
        streams: of events, that are open.
    """

    version: str
    counts: list[RequestCount]
    streams: int


class Page(NamedTuple):
    """An answer to a scrape."""

    content_type: str
    body: bytes


Source = Callable[[], Snapshot | BeatSnapshot | SchedulerSnapshot | ServerSnapshot]
"""The numbers of now: of a worker's processes, of a beat, of a scheduler, or of a server."""

Exporter = Callable[[str], Page]
"""The page of now, for the `Accept` header of who asks."""
