"""What a worker has done, in plain numbers, and who is told while it does it.

The counters cost a few dictionary look-ups a run. Observers cost nothing where there are none.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import msgspec

from taskmq.outcome import Outcome
from taskmq.topology import logical_queue
from taskmq.worker.attempt import Attempt

__all__ = ["BOUNDS", "Count", "Histogram", "Tally"]

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


class Histogram(msgspec.Struct):
    """How many values were in each bucket of `BOUNDS`, and their sum in seconds."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Count(msgspec.Struct):
    """Of one task in one queue.

    Attributes:
        outcomes: runs by how they ended: the names of `taskmq.outcome`'s classes, in lower case.
        run: seconds from the start of a run to its outcome.
        waited: seconds from the moment when a job was due to its first start.
    """

    task: str
    queue: str
    outcomes: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    run: Histogram = msgspec.field(default_factory=Histogram)
    waited: Histogram = msgspec.field(default_factory=Histogram)


class Tally:
    """Counts of one worker since it started.

    Attributes:
        counts: by task and physical queue.
        running: when each attempt that goes on was started, by the monotonic clock.
        ended: runs that have ended.
        on_start: called with each attempt as it starts.
        on_end: called with each attempt, its outcome and the seconds it took, before the outcome is settled.
    """

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Count] = {}
        self.running: dict[Attempt, float] = {}
        self.ended = 0
        self.on_start: list[Callable[[Attempt], None]] = []
        self.on_end: list[Callable[[Attempt, Outcome, float], None]] = []

    def start(self, attempt: Attempt, *, now: float) -> None:
        """A run begins."""
        self.running[attempt] = now
        for call in self.on_start:
            call(attempt)

    def end(self, attempt: Attempt, outcome: Outcome, *, now: float) -> None:
        """It has an outcome."""
        seconds = now - self.running.pop(attempt, now)
        self.ended += 1
        key = (attempt.envelope.task, attempt.delivery.queue)
        count = self.counts.get(key)
        if count is None:
            count = self.counts[key] = Count(key[0], logical_queue(key[1]))
        name = _NAMES[type(outcome)]
        count.outcomes[name] = count.outcomes.get(name, 0) + 1
        count.run.add(seconds)
        if (waited := _waited(attempt)) is not None:
            count.waited.add(waited)
        for call in self.on_end:
            call(attempt, outcome, seconds)

    def forget(self, attempt: Attempt) -> None:
        """It was interrupted before it had an outcome."""
        self.running.pop(attempt, None)


_NAMES: Final[dict[type, str]] = {kind: kind.__name__.lower() for kind in Outcome.__args__}


def _waited(attempt: Attempt) -> float | None:
    if attempt.started is None or attempt.envelope.attempt > 1:
        return None
    due = attempt.envelope.eta or attempt.envelope.enqueued
    return None if due is None else max(attempt.started - due, 0) / 1000
