"""What a beat tells about itself: counts for monitoring, and a status for people."""

import msgspec

from taskmq.model.telemetry.metrics import BeatSnapshot, ScheduleCount
from taskmq.version import VERSION

__all__ = ["BeatCounts", "BeatStatus"]


class BeatStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A beat at one moment. Travels as JSON; fields may be added.

    Attributes:
        started: ms since the epoch.
        next: when something is due next, ms since the epoch; None: nothing is.
        state_silence: seconds since the state last answered; None: it never has.
        emitted: occurrences that the broker has confirmed since the start.
        failed: those that cannot be sent, by anybody.
    """

    version: str
    pid: int
    app: str
    started: int
    schedules: int
    reactions: int
    next: int | None
    state_silence: float | None
    emitted: int
    failed: int


class BeatCounts:
    """What one beat has emitted, by task: as many as the app has tasks, however many schedules there are."""

    def __init__(self) -> None:
        self._counts: dict[str, ScheduleCount] = {}

    def confirmed(self, task: str, kind: str, *, late: float) -> None:
        """One more, `late` seconds after it was due."""
        count = self._of(task)
        count.emitted[kind] = count.emitted.get(kind, 0) + 1
        count.late.add(max(late, 0.0))

    def failed(self, task: str) -> None:
        """One more that cannot be sent."""
        self._of(task).failed += 1

    def totals(self) -> tuple[int, int]:
        """How many were emitted, and how many cannot be sent."""
        counts = self._counts.values()
        return sum(sum(count.emitted.values()) for count in counts), sum(count.failed for count in counts)

    def snapshot(self, *, schedules: int, state_silence: float | None) -> BeatSnapshot:
        """The numbers of now."""
        return BeatSnapshot(VERSION, list(self._counts.values()), schedules, state_silence)

    def _of(self, task: str) -> ScheduleCount:
        count = self._counts.get(task)
        if count is None:
            count = self._counts[task] = ScheduleCount(task)
        return count
