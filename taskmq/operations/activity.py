"""What goes on, made of events: what each task did in the last minute, and which workers there are. Pure."""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from taskmq.model.telemetry.events import Event, JobEvent, WorkerEvent
from taskmq.model.telemetry.worker_status import WorkerStatus

__all__ = ["Activity", "TaskActivity"]

_WINDOW: Final = 60
# Workers report every 10 seconds.
_SILENT: Final = 35
_ENDS: Final = {
    "succeeded": "succeeded",
    "answered": "succeeded",
    "dead": "failed",
    "retried": "retried",
    "cancelled": "cancelled",
}
# What has not run, or is to run again as if it had not.
_NO_END: Final = frozenset({"started", "snoozed", "interrupted", "parked"})


class TaskActivity(msgspec.Struct, kw_only=True):
    """What one task did within the last minute, or since the reader began.

    Attributes:
        per_second: attempts that ended, for each second of it.
        mean_run, longest_run: seconds of the attempts that ended; None: none did.
        mean_wait: seconds from when a job was due until its first attempt started; None: none did.
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
    """What all tasks did in one second."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.counts: dict[str, dict[str, int]] = {}
        self.runs: dict[str, list[float]] = {}
        self.waits: dict[str, list[float]] = {}


class Activity:
    """Counts events as they come.

    Args:
        now: seconds, by a clock that does not go back; so is every `now` below.
    """

    def __init__(self, *, now: float) -> None:
        self._since = now
        self._seconds: deque[_Second] = deque()
        self._workers: dict[str, tuple[float, WorkerStatus]] = {}

    def note(self, event: Event, *, now: float) -> None:
        """Count what has come."""
        if isinstance(event, WorkerEvent):
            if event.event == "offline":
                self._workers.pop(event.worker, None)
            else:
                self._workers[event.worker] = (now, event.status)
        else:
            self._count(event, int(now))

    def workers(self, *, now: float) -> Sequence[WorkerStatus]:
        """Workers that have been heard of within 35 seconds, by their names."""
        self._workers = {name: each for name, each in self._workers.items() if now - each[0] < _SILENT}
        return [self._workers[name][1] for name in sorted(self._workers)]

    def tasks(self, *, now: float) -> Sequence[TaskActivity]:
        """What tasks did in the last minute, the busiest first."""
        self._forget(int(now))
        span = min(max(now - self._since, 1.0), float(_WINDOW))
        names = {task for second in self._seconds for task in (*second.counts, *second.waits)}
        return sorted((self._task(name, span) for name in names), key=lambda each: (-each.per_second, each.task))

    def _count(self, event: JobEvent, at: int) -> None:
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
