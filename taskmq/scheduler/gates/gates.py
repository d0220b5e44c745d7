"""Gates of one partition: the limits of tasks decide which jobs may be dispatched. Pure: times are seconds.

    sort (ready jobs) -> free: to be dispatched -> add -> remove
                      -> behind a gate          -> due: some of them are examined again

A permit is in use from the dispatch of a job until it has left. Rates are counted by the store. What is known of them
here predicts its answers, so that few jobs are dispatched in vain. If a released job was not dispatched (it was
cancelled, or its queue has no room), an alarm opens the gate again for twice as many. So a gate with room and waiting
jobs is never forgotten.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from taskmq.contracts.jobs import DispatchedJob, Lane, ReadyJob
from taskmq.contracts.stores import Demand, PlaceDemand, RateDemand
from taskmq.model.limits import LEAD, count_starts, first_start, used_until, wait_for_start
from taskmq.scheduler.gates.claims import ClaimTurn
from taskmq.scheduler.gates.demands import TaskDemands

# Most seconds that the jobs of strict rates are expected to travel to their workers.
_LONGEST_LEAD: Final = 2.0
_LONGER: Final = 1.5
_SHORTER: Final = 0.9
# Seconds without a late job before the lead becomes shorter.
_CALM: Final = 10.0
# Interval of a high rate's releases, so that its jobs go in batches.
_STEP: Final = 0.05
_CHECK: Final = 1.0
# Most jobs released at once after earlier ones were not dispatched.
_MOST_AGAIN: Final = 500
# Most seconds for which a job that a worker turned back keeps its permit, because the limit is used up elsewhere.
_TURNED_BACK: Final = 10.0
_MOST_PACES: Final = 10_000
# Seconds for which jobs of a queue are examined after a limited one was seen there.
_CONCERNED: Final = 60.0


class _Gate(NamedTuple):
    """A gate with waiting jobs: their demand, and their queues."""

    demand: Demand
    queues: frozenset[str]


class Gates:
    """The gates of one partition.

    Args:
        dice: returns a number from 0 to 1: schedulers that share a rate ask for starts at different times.

    Attributes:
        lead: seconds that jobs of strict rates are expected to travel to their workers.
    """

    def __init__(self, demands: TaskDemands, *, dice: Callable[[], float] = lambda: 0.0) -> None:
        self.lead = LEAD
        self._last_late = -math.inf
        self._dice = dice
        self._demands = demands
        # Until when queues other than those of `demands` may have jobs with limits.
        self._concerned: dict[str, float] = {}
        self._waiting: dict[str, _Gate] = {}
        # Number of jobs last released from gates without a dispatch since.
        self._in_vain: dict[str, int] = {}
        self._flights: dict[str, tuple[str, ...]] = {}
        self._in_use: Counter[str] = Counter()
        # Until when each rate is used up.
        self._paces: dict[str, float] = {}
        self._most_paces = _MOST_PACES
        self._news: set[str] = set()
        self._alarms: list[tuple[float, str]] = []
        # Jobs that were turned back, and when their permits end unless they are dispatched again before.
        self._turned_back: dict[str, float] = {}
        self._returns: list[tuple[float, str]] = []

    def may_have_limits(self, queue: str, *, now: float) -> bool:
        """Whether jobs of the queue may have limits."""
        return queue in self._demands.queues or self._concerned.get(queue, -math.inf) > now

    @property
    def are_closed(self) -> bool:
        """Whether jobs wait behind any gate."""
        return bool(self._waiting)

    def sort(
        self, jobs: Sequence[ReadyJob], counts: Mapping[Lane, int], *, claims: ClaimTurn, now: float
    ) -> tuple[Counter[Lane], dict[str, str]]:
        """Return how many jobs of each lane may be dispatched, and the gates of those that have to wait.

        Args:
            jobs: the first jobs of the lanes, in order.
            counts: number of jobs wanted from each lane.
            claims: claims that the store decides.
        """
        room: dict[str, int] = {}
        free: Counter[Lane] = Counter()
        behind: dict[str, str] = {}
        for job in jobs:
            if job.id in self._turned_back:
                # It is ready again, and needs the permit that it has kept.
                self._end(job.id)
        for job in jobs:
            if demands := self._demands.of(job.task, job.body):
                self._note(job.lane.queue, now)
            for demand in demands:
                if demand.key not in room:
                    room[demand.key] = self._room(demand, now)
            closed = None if job.is_over else next((demand for demand in demands if room[demand.key] < 1), None)
            if closed is not None:
                behind[job.id] = closed.key
                self._wait_behind(closed, job.lane.queue, now)
            elif not job.is_over and (claim := claims.find_closed(job)) is not None:
                behind[job.id] = claim
            elif free[job.lane] < counts[job.lane]:
                free[job.lane] += 1
                if not job.is_over:
                    claims.take(job)
                    room.update((demand.key, room[demand.key] - 1) for demand in demands)
        return free, behind

    def add(self, jobs: Sequence[DispatchedJob], *, now: float) -> None:
        """Record dispatched jobs, including those of an earlier holder of the partition."""
        if not self._demands.queues:
            return
        for job in jobs:
            demands = self._demands.of(job.task, job.body)
            if not demands and job.id not in self._flights:
                continue
            self._note(job.queue, now)
            self._end(job.id)
            permits = tuple(demand.key for demand in demands if isinstance(demand, PlaceDemand))
            self._flights[job.id] = permits
            self._in_use.update(permits)
            for demand in demands:
                self._in_vain.pop(demand.key, None)
                if not isinstance(demand, PlaceDemand):
                    until = self._paces.get(demand.key, -math.inf)
                    self._paces[demand.key] = first_start(demand, until, now=now, lead=self.lead) + demand.interval
        if len(self._paces) > self._most_paces:
            self._paces = {key: until for key, until in self._paces.items() if until > now}
            self._most_paces = max(_MOST_PACES, 2 * len(self._paces))

    @property
    def has_any(self) -> bool:
        """Whether any task of the app has limits."""
        return bool(self._demands.queues)

    def rates_of(self, job: DispatchedJob) -> tuple[RateDemand, ...]:
        """Return the rates that the job starts under."""
        return self._demands.rates(job.task, job.body)

    def rates_of_gates(self, keys: Iterable[str]) -> list[RateDemand]:
        """Return the rates among these gates."""
        gates = (self._waiting[key].demand for key in keys if key in self._waiting)
        return [demand for demand in gates if not isinstance(demand, PlaceDemand)]

    def record_wait(self, demand: RateDemand, wait: float, *, now: float) -> int:
        """Record the store's answer: when the rate has room. Returns how many starts it grants now."""
        self._paces[demand.key] = used_until(demand, wait, now=now, lead=self.lead)
        return self._room(demand, now)

    def wait_behind(self, demand: RateDemand, queue: str, *, now: float) -> None:
        """Record that a job of the queue waits for a rate."""
        self._note(queue, now)
        self._wait_behind(demand, queue, now)

    def keep_closed(self, demand: RateDemand, *, now: float) -> None:
        """Record that a gate that was due has no room yet."""
        self._in_vain.pop(demand.key, None)
        self._set_alarm(demand, now)

    def note_late(self, *, now: float) -> None:
        """Record that a job reached its worker after the instant of its start."""
        if now - self._last_late > self.lead:
            # Jobs that are under way when the first one is late are late for the same reason.
            self.lead = min(self.lead * _LONGER, _LONGEST_LEAD)
            self._last_late = now

    def note_in_time(self, *, now: float) -> None:
        """Record that starts were granted: after a time without late jobs, the lead becomes shorter."""
        if self.lead > LEAD and now - self._last_late > _CALM:
            self.lead, self._last_late = max(self.lead * _SHORTER, LEAD), now

    def turn_back(self, job_id: str, seconds: float, *, now: float) -> None:
        """Record that a worker turned the job back, as a limit is used up; it keeps its permits for a time."""
        if job_id in self._flights:
            self._turned_back[job_id] = until = now + min(seconds, _TURNED_BACK)
            heapq.heappush(self._returns, (until, job_id))

    def remove(self, job_id: str) -> bool:
        """Remove a job in flight. Returns whether other jobs wait for its permits."""
        return job_id in self._flights and job_id not in self._turned_back and self._end(job_id)

    def due(self, has_room: Callable[[str], bool], *, now: float) -> dict[str, int]:
        """Return the gates that can release jobs now, and how many.

        Args:
            has_room: returns whether a queue has room; the jobs of others keep waiting.
        """
        while self._returns and self._returns[0][0] <= now:
            until, job_id = heapq.heappop(self._returns)
            if self._turned_back.get(job_id) == until:
                self._end(job_id)
        while self._alarms and self._alarms[0][0] <= now:
            self._news.add(heapq.heappop(self._alarms)[1])
        found: dict[str, int] = {}
        for key in sorted(self._news):
            gate = self._waiting.get(key)
            if gate is not None and not any(map(has_room, gate.queues)):
                continue
            self._news.discard(key)
            if gate is not None:
                if (room := self._room(gate.demand, now)) > 0:
                    again = min(2 * self._in_vain.get(key, 0), _MOST_AGAIN)
                    found[key] = self._in_vain[key] = max(room, again)
                    for queue in gate.queues:
                        self._note(queue, now)
                self._set_alarm(gate.demand, now)
        return found

    def record_released(self, asked: Mapping[str, int], found: Mapping[str, int]) -> None:
        """Record released jobs, and forget gates with fewer waiting jobs than requested."""
        for key, count in asked.items():
            if found.get(key, 0) < count:
                self._waiting.pop(key, None)
                self._in_vain.pop(key, None)

    def next(self) -> float:
        """Return when to call `due` next; infinity if no time is set."""
        times = [heap[0][0] for heap in (self._alarms, self._returns) if heap]
        return min(times, default=math.inf)

    def _note(self, queue: str, now: float) -> None:
        """Record that the queue has a job with limits."""
        self._concerned[queue] = now + _CONCERNED

    def _wait_behind(self, demand: Demand, queue: str, now: float) -> None:
        if demand.key not in self._waiting:
            self._set_alarm(demand, now)
        before = self._waiting.get(demand.key)
        queues = frozenset((queue,)) if before is None else before.queues | {queue}
        self._waiting[demand.key] = _Gate(demand, queues)

    def _set_alarm(self, demand: Demand, now: float) -> None:
        at = now + (_STEP if demand.key in self._in_vain else _CHECK)
        if not isinstance(demand, PlaceDemand):
            wait = wait_for_start(demand, self._paces.get(demand.key, -math.inf), now=now, lead=self.lead)
            at = now + max(wait, _STEP) + self._dice() * min(demand.interval, _STEP)
        elif self._room(demand, now) < 1 and demand.key in self._in_use:
            # It opens when a job leaves.
            return
        heapq.heappush(self._alarms, (at, demand.key))

    def _room(self, demand: Demand, now: float) -> int:
        if isinstance(demand, PlaceDemand):
            return demand.places - self._in_use[demand.key]
        return count_starts(demand, self._paces.get(demand.key, -math.inf), now=now, lead=self.lead)

    def _end(self, job_id: str) -> bool:
        """Free the job's permits. Returns whether others wait for one of them."""
        self._turned_back.pop(job_id, None)
        permits = self._flights.pop(job_id, ())
        for key in permits:
            self._in_use[key] -= 1
            if not self._in_use[key]:
                del self._in_use[key]
        closed = {key for key in permits if key in self._waiting}
        self._news |= closed
        return bool(closed)
