"""Activity of each task in the last minute, counted from events. Pure."""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.model.telemetry.events import JobEvent

_WINDOW: Final = 60
_ENDS: Final = {
    "succeeded": "succeeded",
    "answered": "succeeded",
    "dead": "failed",
    "retried": "retried",
    "cancelled": "cancelled",
}
# Events that end no attempt: the job is running, or will run again as if it had not.
_NO_END: Final = frozenset({"started", "snoozed", "interrupted", "parked"})


class TaskActivity(msgspec.Struct, kw_only=True):
    """Activity of one task in the last minute, or since the reader started.

    Attributes:
        per_second: attempts that ended, per second.
        mean_run, longest_run: duration in seconds of the attempts that ended; None if none did.
        mean_wait: seconds from a job's due time to its first attempt; None if no first attempt started.
    """

    task: str
    per_second: float = 0.0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    cancelled: int = 0
    mean_run: float | None = None
    longest_run: float | None = None
    mean_wait: float | None = None


class _Second:
    """Activity of all tasks in one second."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.counts: dict[str, dict[str, int]] = {}
        self.runs: dict[str, list[float]] = {}
        self.waits: dict[str, list[float]] = {}


class Activity:
    """Counter of events as they arrive.

    Args:
        now: seconds on a monotonic clock; every other `now` in this class uses the same clock.
    """

    def __init__(self, *, now: float) -> None:
        self._since = now
        self._seconds: deque[_Second] = deque()

    def note(self, event: JobEvent, *, now: float) -> None:
        """Count one event of a job."""
        at = int(now)
        if not self._seconds or self._seconds[-1].at != at:
            self._forget(at)
            self._seconds.append(_Second(at))
        second = self._seconds[-1]
        if event.waited is not None:
            second.waits.setdefault(event.task, []).append(event.waited)
        if event.event in _NO_END:
            return
        counts = second.counts.setdefault(event.task, {})
        outcome = _ENDS.get(event.event, event.event)
        counts[outcome] = counts.get(outcome, 0) + 1
        if event.seconds is not None:
            second.runs.setdefault(event.task, []).append(event.seconds)

    def tasks(self, *, now: float) -> Sequence[TaskActivity]:
        """Return the activity of each task in the last minute, busiest first."""
        self._forget(int(now))
        span = min(max(now - self._since, 1.0), float(_WINDOW))
        names = {task for second in self._seconds for task in (*second.counts, *second.waits)}
        return sorted((self._task(name, span) for name in names), key=lambda each: (-each.per_second, each.task))

    def _forget(self, at: int) -> None:
        while self._seconds and self._seconds[0].at <= at - _WINDOW:
            self._seconds.popleft()

    def _task(self, name: str, span: float) -> TaskActivity:
        counts: dict[str, int] = {}
        for second in self._seconds:
            for outcome, count in second.counts.get(name, {}).items():
                counts[outcome] = counts.get(outcome, 0) + count
        runs = [run for second in self._seconds for run in second.runs.get(name, ())]
        waits = [wait for second in self._seconds for wait in second.waits.get(name, ())]
        return TaskActivity(
            task=name,
            per_second=sum(counts.values()) / span,
            succeeded=counts.get("succeeded", 0),
            failed=counts.get("failed", 0),
            retried=counts.get("retried", 0),
            cancelled=counts.get("cancelled", 0),
            mean_run=sum(runs) / len(runs) if runs else None,
            longest_run=max(runs, default=None),
            mean_wait=sum(waits) / len(waits) if waits else None,
        )
