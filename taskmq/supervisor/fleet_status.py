"""Combined status of a supervisor's processes, for people, monitoring and its own decisions."""

import os
import time
from collections import deque
from collections.abc import Iterable, Sequence

from taskmq.model.telemetry.metrics import Count, ProcessGauges, Snapshot
from taskmq.supervisor.autoscale import Load
from taskmq.supervisor.child_process import ChildProcess
from taskmq.supervisor.exit_reason import ExitReason
from taskmq.supervisor.process_slot import ProcessSlot
from taskmq.supervisor.status import ProcessStatus, SupervisorStatus
from taskmq.version import VERSION

Counts = dict[tuple[str, str], Count]

_RATE_OVER = 10.0


class FleetStatus:
    """Reads slots and processes without changing them.

    Args:
        app: the app that the processes run.
        slots, children: the supervisor's own, which change.
        least, most: bounds of the number of processes.

    Attributes:
        replaced: number of processes that were replaced in order.
    """

    def __init__(
        self, app: str, slots: Sequence[ProcessSlot], children: set[ChildProcess], *, least: int, most: int
    ) -> None:
        self._app = app
        self._slots = slots
        self._children = children
        self._least = least
        self._most = most
        self._started = int(time.time() * 1000)
        self._totals = FleetCounts()
        self._ends: dict[str, int] = {}
        self._pace: deque[tuple[float, int]] = deque()
        self.replaced = 0

    def keep(self, child: ChildProcess) -> None:
        """Keep the counts of a process that ended."""
        self._totals.keep(child.counts.values())

    def note(self, ending: ExitReason) -> None:
        """Count the unexpected end of a process."""
        self._ends[ending.how] = self._ends.get(ending.how, 0) + 1

    def silent(self, longest: float) -> list[str]:
        """Return the processes without a message for more than `longest` seconds, as text."""
        return [
            f"process {child.pid} has been silent for {child.silent:.0f} s"
            for child in self._children
            if child.silent > longest and not child.ended.done()
        ]

    def not_ready(self, *, is_stopping: bool) -> str | None:
        """Return why no process consumes; None if one does."""
        if is_stopping:
            return "stopping"
        if any(child.consumes for child in self._children):
            return None
        states = ", ".join(f"slot {slot.number} {_state(slot)}{_trouble(slot)}" for slot in self._slots)
        return f"no process accepts jobs: {states or 'there is none'}"

    def status(self, *, wanted: int, is_stopping: bool) -> SupervisorStatus:
        current = {slot.current for slot in self._slots}
        return SupervisorStatus(
            version=VERSION,
            pid=os.getpid(),
            app=self._app,
            started=self._started,
            is_stopping=is_stopping,
            least=self._least,
            most=self._most,
            wanted=wanted,
            slots=[_process_status(slot) for slot in self._slots],
            leaving=[child.pid for child in self._children if child not in current],
            ends=dict(self._ends),
            replaced=self.replaced,
            jobs=sum(count.ended for count in self._counts()),
            queues=self._depths() or {},
        )

    def snapshot(self, *, wanted: int) -> Snapshot:
        return Snapshot(
            version=VERSION,
            counts=self._counts(),
            processes=[gauges for slot in self._slots if (gauges := _gauges(slot)) is not None],
            wanted=wanted,
            ends=dict(self._ends),
            queues=self._depths() or {},
        )

    def load(self) -> Load:
        """Return the load of the consuming processes."""
        now = time.monotonic()
        consuming = [child for child in self._children if child.consumes]
        statuses = [(child, child.status) for child in consuming if not child.is_paused]
        depths = self._depths()
        return Load(
            at=now,
            processes=sum(child.was_ready for child, _ in statuses),
            slots=sum(status.slots for _, status in statuses if status),
            busy=sum(status.running for _, status in statuses if status),
            cpu=sum(child.report.cpu for child, _ in statuses if child.report),
            rate=self._rate(now),
            backlog=None if depths is None else sum(depths.values()),
            paused=len(consuming) - len(statuses),
        )

    def _counts(self) -> list[Count]:
        return self._totals.sum(child.counts.values() for child in self._children)

    def _rate(self, now: float) -> float:
        """Return the runs a second over the last few seconds, and store the count for the next call."""
        self._pace.append((now, sum(count.ended for count in self._counts())))
        while len(self._pace) > 2 and now - self._pace[1][0] >= _RATE_OVER:
            self._pace.popleft()
        (began, first), (_, last) = self._pace[0], self._pace[-1]
        return (last - first) / (now - began) if now > began else 0.0

    def _depths(self) -> dict[str, int] | None:
        """Return the depths reported by the youngest process that looks."""
        seen = [child for child in self._children if child.report is not None and child.report.depths is not None]
        report = max(seen, key=lambda child: child.heard).report if seen else None
        return None if report is None else report.depths


def _state(slot: ProcessSlot) -> str:
    child = slot.current
    if child is None:
        return "waiting"
    if child.is_draining:
        return "draining"
    if child.status is None:
        return "running" if child.was_ready else "starting"
    return child.status.state


def _trouble(slot: ProcessSlot) -> str:
    is_stuck = slot.current is not None and slot.current.is_stuck
    return ", where no outcome can be settled (its log says why)" if is_stuck else ""


def _process_status(slot: ProcessSlot) -> ProcessStatus:
    child = slot.current
    return ProcessStatus(
        slot=slot.number,
        pid=None if child is None else child.pid,
        state=_state(slot),
        failures=slot.failures,
        last_ending=None if slot.last_ending is None else str(slot.last_ending),
        next_try=None if slot.next_try is None else max(slot.next_try - time.monotonic(), 0.0),
        silent=None if child is None else child.silent,
        worker=None if child is None else child.status,
    )


def _gauges(slot: ProcessSlot) -> ProcessGauges | None:
    child = slot.current
    if child is None or (report := child.report) is None:
        return None
    status = report.status
    return ProcessGauges(
        slot=slot.number,
        state=_state(slot),
        slots=status.slots,
        running=status.running,
        backlog=status.backlog,
        abandoned=status.abandoned,
        unsettled=status.unsettled,
        memory=status.memory,
        descriptors=status.descriptors,
        loop_lag=status.loop_lag,
        cpu=report.cpu,
    )


class FleetCounts:
    """Sums counts, so that no sum ever decreases when a process is replaced.

    Runs of a killed process since its last report are in no sum.
    """

    def __init__(self) -> None:
        self._ended: Counts = {}

    def keep(self, counts: Iterable[Count]) -> None:
        """Keep the counts of a process that ended."""
        _add(self._ended, counts)

    def sum(self, living: Iterable[Iterable[Count]]) -> list[Count]:
        """Return the sums of kept counts and those of the `living` processes."""
        total: Counts = {}
        for counts in (self._ended.values(), *living):
            _add(total, counts)
        return list(total.values())


def _add(total: Counts, counts: Iterable[Count]) -> None:
    for count in counts:
        key = (count.task, count.queue)
        if (there := total.get(key)) is None:
            there = total[key] = Count(*key)
        there.merge(count)
