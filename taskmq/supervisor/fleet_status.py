"""What a supervisor knows of all its processes together, for people, monitoring and its own decisions."""

import os
import time
from collections import deque
from collections.abc import Iterable, Sequence

from taskmq.model.telemetry.metrics import Count, ProcessGauges, Snapshot
from taskmq.supervisor.autoscale import Load
from taskmq.supervisor.child_process import ChildProcess
from taskmq.supervisor.exit_reason import Ending
from taskmq.supervisor.process_slot import Seat
from taskmq.supervisor.status import SeatStatus, SupervisorStatus
from taskmq.version import VERSION

__all__ = ["Overview", "Totals"]

Counts = dict[tuple[str, str], Count]

_RATE_OVER = 10.0


class Overview:
    """Reads seats and processes, changes none.

    Args:
        app: what the processes were told to run.
        seats, children: the supervisor's own, which change.
        least, most: bounds of the number of processes.

    Attributes:
        replaced: how often a process was replaced in order.
    """

    def __init__(
        self, app: str, seats: Sequence[Seat], children: set[ChildProcess], *, least: int, most: int
    ) -> None:
        self._app = app
        self._seats = seats
        self._children = children
        self._least = least
        self._most = most
        self._started = int(time.time() * 1000)
        self._totals = Totals()
        self._ends: dict[str, int] = {}
        self._pace: deque[tuple[float, int]] = deque()
        self.replaced = 0

    def keep(self, child: ChildProcess) -> None:
        """It has ended; what it has done stays."""
        self._totals.keep(child.counts.values())

    def note(self, ending: Ending) -> None:
        """A process has ended before its time."""
        self._ends[ending.how] = self._ends.get(ending.how, 0) + 1

    def silent(self, longest: float) -> list[str]:
        """Which processes have said nothing for more than `longest` seconds, in words."""
        return [
            f"process {child.pid} has said nothing for {child.silent:.0f} s"
            for child in self._children
            if child.silent > longest and not child.ended.done()
        ]

    def not_ready(self, *, is_stopping: bool) -> str | None:
        """Why no process takes jobs; None where one does."""
        if is_stopping:
            return "stopping"
        if any(child.consumes for child in self._children):
            return None
        states = ", ".join(f"seat {seat.number} {_state(seat)}" for seat in self._seats)
        return f"no process takes jobs: {states or 'there is none'}"

    def status(self, *, wanted: int, is_stopping: bool) -> SupervisorStatus:
        current = {seat.current for seat in self._seats}
        return SupervisorStatus(
            version=VERSION,
            pid=os.getpid(),
            app=self._app,
            started=self._started,
            is_stopping=is_stopping,
            least=self._least,
            most=self._most,
            wanted=wanted,
            seats=[_seat_status(seat) for seat in self._seats],
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
            processes=[gauges for seat in self._seats if (gauges := _gauges(seat)) is not None],
            wanted=wanted,
            ends=dict(self._ends),
            queues=self._depths() or {},
        )

    def load(self) -> Load:
        """How busy those are that take jobs."""
        now = time.monotonic()
        statuses = [(child, child.status) for child in self._children if child.consumes]
        depths = self._depths()
        return Load(
            at=now,
            processes=sum(child.was_ready for child, _ in statuses),
            slots=sum(status.slots for _, status in statuses if status),
            busy=sum(status.running for _, status in statuses if status),
            cpu=sum(child.report.cpu for child, _ in statuses if child.report),
            rate=self._rate(now),
            backlog=None if depths is None else sum(depths.values()),
        )

    def _counts(self) -> list[Count]:
        return self._totals.sum(child.counts.values() for child in self._children)

    def _rate(self, now: float) -> float:
        """Runs a second over the last few seconds; keeps a note for the next call."""
        self._pace.append((now, sum(count.ended for count in self._counts())))
        while len(self._pace) > 2 and now - self._pace[1][0] >= _RATE_OVER:
            self._pace.popleft()
        (began, first), (_, last) = self._pace[0], self._pace[-1]
        return (last - first) / (now - began) if now > began else 0.0

    def _depths(self) -> dict[str, int] | None:
        """What the youngest process that looks has seen."""
        seen = [child for child in self._children if child.report is not None and child.report.depths is not None]
        report = max(seen, key=lambda child: child.heard).report if seen else None
        return None if report is None else report.depths


def _state(seat: Seat) -> str:
    child = seat.current
    if child is None:
        return "waiting"
    if child.is_draining:
        return "draining"
    if child.status is None:
        return "running" if child.was_ready else "starting"
    return child.status.state


def _seat_status(seat: Seat) -> SeatStatus:
    child = seat.current
    return SeatStatus(
        seat=seat.number,
        pid=None if child is None else child.pid,
        state=_state(seat),
        failures=seat.failures,
        last_ending=None if seat.last_ending is None else str(seat.last_ending),
        next_try=None if seat.next_try is None else max(seat.next_try - time.monotonic(), 0.0),
        silent=None if child is None else child.silent,
        worker=None if child is None else child.status,
    )


def _gauges(seat: Seat) -> ProcessGauges | None:
    child = seat.current
    if child is None or (report := child.report) is None:
        return None
    status = report.status
    return ProcessGauges(
        seat=seat.number,
        state=_state(seat),
        slots=status.slots,
        running=status.running,
        backlog=status.backlog,
        abandoned=status.abandoned,
        memory=status.memory,
        descriptors=status.descriptors,
        loop_lag=status.loop_lag,
        cpu=report.cpu,
    )


class Totals:
    """Adds up counts, so that no sum ever goes down when a process is replaced.

    What a killed process has done since its last report is in no sum.
    """

    def __init__(self) -> None:
        self._ended: Counts = {}

    def keep(self, counts: Iterable[Count]) -> None:
        """A process has ended with these."""
        _add(self._ended, counts)

    def sum(self, living: Iterable[Iterable[Count]]) -> list[Count]:
        """Those kept and those of the `living` processes."""
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
