"""Simulation of a cluster in virtual time: jobs arrive, an order picks the next ones, slots run them.

    arrivals -> waiting -> decided -> (ahead: at the broker, in their order) -> a slot -> ended

The figures do not depend on the machine: the same arrivals and the same order give the same figures.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from taskmq.model.jobs.pools import Amounts

_ONE: Amounts = {"slots": 1.0}
_NEVER = float("inf")


@dataclass(slots=True)
class VirtualJob:
    """A job with its arrival and run time in seconds."""

    number: int
    tenant: str
    seconds: float
    submitted: float = 0.0
    priority: int = 4
    expires: float = _NEVER
    needs: Amounts = field(default_factory=lambda: _ONE)
    started: float = -1.0


class Turns(Protocol):
    """An order that picks the next jobs."""

    def on_arrival(self, job: VirtualJob) -> None:
        """Add a waiting job."""
        ...

    def next(self, room: int, now: float) -> list[VirtualJob]:
        """Remove and return the next waiting jobs, at most `room`."""
        ...

    def on_return(self, job: VirtualJob) -> None:
        """Put a picked job back because it does not fit now."""
        ...

    def on_start(self, job: VirtualJob, now: float) -> None:
        """Record that the job started in a slot."""
        ...

    def on_end(self, job: VirtualJob) -> None:
        """Record that the job ended."""
        ...


@dataclass
class Outcome:
    """Figures of a simulation.

    Attributes:
        readings: pairs of an instant and each tenant's worker-seconds until then.
        running: pairs of an instant and each tenant's running jobs.
        waits: times from submission to start, by tenant; `responses`: times to the end.
        by_priority: worker-seconds by priority at the end.
    """

    until: float
    slots: int
    decided: int = 0
    ended: int = 0
    readings: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    running: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    waits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    responses: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    by_priority: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def utilisation(self) -> float:
        """Fraction of the slots that was used."""
        return sum(self.readings[-1][1].values()) / (self.until * self.slots)

    def shares(self, since: float = 0.0) -> dict[str, float]:
        """Return each tenant's share of all worker-seconds, from the first reading after `since` to the end."""
        nothing: dict[str, float] = {}
        before = next((found for at, found in self.readings if at > since), nothing) if since else nothing
        used = {name: seconds - before.get(name, 0.0) for name, seconds in self.readings[-1][1].items()}
        total = sum(used.values())
        return {name: seconds / total for name, seconds in sorted(used.items())}


class Simulation:
    """Slots and the jobs that they run.

    Args:
        ahead: number of jobs picked before a slot is free; they start in this order.
        every: seconds between two readings.
        capacities: amounts of resources besides slots; a job that does not fit waits again until another job ends.
        together: with `capacities`, the most jobs picked together; one that does not fit then blocks those behind it;
            0: jobs that do not fit wait again.
    """

    def __init__(
        self,
        turns: Turns,
        *,
        slots: int,
        ahead: int = 0,
        every: float = 1.0,
        capacities: Amounts | None = None,
        together: int = 0,
    ) -> None:
        self.turns = turns
        self._slots = slots
        self._ahead = ahead
        self._every = every
        self._together = together
        self._free = dict(capacities or {})
        self._running: list[tuple[float, int, VirtualJob]] = []
        self._at_broker: deque[VirtualJob] = deque()
        self._used: defaultdict[str, float] = defaultdict(float)

    def run(
        self,
        arrivals: Iterable[VirtualJob],
        *,
        until: float = _NEVER,
        changes: Mapping[float, Turns] | None = None,
    ) -> Outcome:
        """Run the jobs, sorted by arrival, until `until` or until none is left, and return the figures.

        Args:
            changes: orders that replace the current one from an instant on; they know the waiting and running jobs.
        """
        found = Outcome(until, self._slots)
        coming: Iterator[VirtualJob] = iter(arrivals)
        following = next(coming, None)
        switches = sorted((changes or {}).items())
        reading, now = self._every, 0.0
        while True:
            self._end(found, now)
            while following is not None and following.submitted <= now:
                self.turns.on_arrival(following)
                following = next(coming, None)
            if switches and switches[0][0] <= now:
                self.turns = switches.pop(0)[1]
            self._decide(found, now)
            arrival = _NEVER if following is None else following.submitted
            change = switches[0][0] if switches else _NEVER
            happens = min(until, self._running[0][0] if self._running else _NEVER, arrival, change)
            now = min(happens, reading)
            if now >= reading or now >= until or happens == _NEVER:
                now = now if happens != _NEVER else found.readings[-1][0]
                self._read(found, now)
                reading += self._every
            if now >= until or happens == _NEVER:
                found.until = now
                return found

    def _end(self, found: Outcome, now: float) -> None:
        while self._running and self._running[0][0] <= now:
            _, _, job = heapq.heappop(self._running)
            self._used[job.tenant] += job.seconds
            found.ended += 1
            found.by_priority[job.priority] += job.seconds
            found.responses[job.tenant].append(now - job.submitted)
            for name in self._free:
                self._free[name] += job.needs.get(name, 0.0)
            self.turns.on_end(job)

    def _decide(self, found: Outcome, now: float) -> None:
        while True:
            while self._at_broker and len(self._running) < self._slots and self._fits(self._at_broker[0]):
                self._start(found, self._at_broker.popleft(), now)
            room = self._slots + self._ahead - len(self._running) - len(self._at_broker)
            if self._free:
                if self._at_broker:
                    if not self._together:
                        self.turns.on_return(self._at_broker.popleft())
                    return
                room = min(room, self._together or 1)
            if room <= 0 or not (decided := self.turns.next(room, now)):
                return
            found.decided += len(decided)
            self._at_broker.extend(decided)

    def _start(self, found: Outcome, job: VirtualJob, now: float) -> None:
        job.started = now
        for name in self._free:
            self._free[name] -= job.needs.get(name, 0.0)
        heapq.heappush(self._running, (now + job.seconds, job.number, job))
        found.waits[job.tenant].append(now - job.submitted)
        self.turns.on_start(job, now)

    def _fits(self, job: VirtualJob) -> bool:
        return all(job.needs.get(name, 0.0) <= amount + 1e-9 for name, amount in self._free.items())

    def _read(self, found: Outcome, now: float) -> None:
        used: dict[str, float] = dict(self._used)
        counts: dict[str, int] = {}
        for _, _, job in self._running:
            used[job.tenant] = used.get(job.tenant, 0.0) + now - job.started
            counts[job.tenant] = counts.get(job.tenant, 0) + 1
        found.readings.append((now, used))
        found.running.append((now, counts))
