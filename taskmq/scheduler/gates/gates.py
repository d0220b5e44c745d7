"""Gates of one partition: the limits of tasks decide which jobs may go. Pure: times are seconds.

    sort (ready jobs) -> free: to be dispatched -> taken -> left
                      -> behind a gate          -> due: so many of it are looked at again

A place is in use from the dispatch of a job until it has left. A rate counts dispatches, by the generic cell rate
algorithm. What was let go and not dispatched after all (it was cancelled, or its queue has no room) is found by an
alarm, and twice as many go the next time: a gate with room and jobs behind it is never forgotten.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from taskmq.contracts.jobs import DispatchedJob, Lane, ReadyJob
from taskmq.contracts.stores import Demand, PlaceDemand
from taskmq.scheduler.gates.demands import TaskDemands

__all__ = ["Gates"]

# So much before their time jobs of a rate go: what the way to a worker takes.
_LEAD: Final = 0.1
# So much of the time in which a rate let no job go is made up for.
_MADE_UP: Final = 0.25
# Not each job of a high rate by itself.
_STEP: Final = 0.05
_CHECK: Final = 1.0
# So many go at once where those that went before were not dispatched.
_MOST_AGAIN: Final = 500
# So long a job that a worker has turned back keeps its place: the limit is used up elsewhere.
_TURNED_BACK: Final = 10.0
_MOST_PACES: Final = 10_000
# So long jobs of a queue are looked at after a limited one was seen there.
_CONCERNED: Final = 60.0


class _Gate(NamedTuple):
    """A gate with jobs behind it: what they demand, and the queues that they are in."""

    demand: Demand
    queues: frozenset[str]


class Gates:
    """The gates of one partition."""

    def __init__(self, demands: TaskDemands) -> None:
        self._demands = demands
        # Until when other queues than those of `demands` have jobs with limits.
        self._concerned: dict[str, float] = {}
        self._waiting: dict[str, _Gate] = {}
        # How many went last of those gates from which none was dispatched since.
        self._in_vain: dict[str, int] = {}
        self._flights: dict[str, tuple[str, ...]] = {}
        self._in_use: Counter[str] = Counter()
        # Until when the rate is used up.
        self._paces: dict[str, float] = {}
        self._most_paces = _MOST_PACES
        self._news: set[str] = set()
        self._alarms: list[tuple[float, str]] = []
        # Those that were turned back; their places end unless they go again before.
        self._turned_back: dict[str, float] = {}
        self._returns: list[tuple[float, str]] = []

    def concern(self, queue: str, *, now: float) -> bool:
        """Whether jobs of the queue may have limits."""
        return queue in self._demands.queues or self._concerned.get(queue, -math.inf) > now

    @property
    def are_closed(self) -> bool:
        """Whether jobs wait behind any."""
        return bool(self._waiting)

    def sort(
        self, jobs: Sequence[ReadyJob], counts: Mapping[Lane, int], *, now: float
    ) -> tuple[Counter[Lane], dict[str, str]]:
        """How many of the first jobs of each lane may go, and those that have to wait, each with its gate.

        Args:
            jobs: the first ones of lanes, in their order.
            counts: how many of each lane are to go.
        """
        room: dict[str, int] = {}
        free: Counter[Lane] = Counter()
        behind: dict[str, str] = {}
        for job in jobs:
            if job.id in self._turned_back:
                # It is there again, and needs the place that it has kept.
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
            elif free[job.lane] < counts[job.lane]:
                free[job.lane] += 1
                if not job.is_over:
                    room.update((demand.key, room[demand.key] - 1) for demand in demands)
        return free, behind

    def taken(self, jobs: Sequence[DispatchedJob], *, now: float) -> None:
        """These are in flight now; also those that an earlier holder of the partition has dispatched."""
        if not self._demands.queues:
            return
        for job in jobs:
            demands = self._demands.of(job.task, job.body)
            if not demands and job.id not in self._flights:
                continue
            self._note(job.queue, now)
            self._end(job.id)
            places = tuple(demand.key for demand in demands if isinstance(demand, PlaceDemand))
            self._flights[job.id] = places
            self._in_use.update(places)
            for demand in demands:
                self._in_vain.pop(demand.key, None)
                if not isinstance(demand, PlaceDemand):
                    self._paces[demand.key] = self._base(demand.key, now) + demand.interval
        if len(self._paces) > self._most_paces:
            self._paces = {key: until for key, until in self._paces.items() if until > now}
            self._most_paces = max(_MOST_PACES, 2 * len(self._paces))

    def turned_back(self, job_id: str, seconds: float, *, now: float) -> None:
        """A worker says that a limit of the job's task is used up: for so long there is no more room than it has."""
        if job_id in self._flights:
            self._turned_back[job_id] = until = now + min(seconds, _TURNED_BACK)
            heapq.heappush(self._returns, (until, job_id))

    def left(self, job_id: str) -> bool:
        """A job is not in flight any more; whether other jobs wait for its place."""
        return job_id in self._flights and job_id not in self._turned_back and self._end(job_id)

    def due(self, has_room: Callable[[str], bool], *, now: float) -> dict[str, int]:
        """The gates that let jobs go now, and how many.

        Args:
            has_room: of a queue; others wait.
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

    def opened(self, asked: Mapping[str, int], found: Mapping[str, int]) -> None:
        """Forget the gates behind which fewer jobs waited than were asked for."""
        for key, count in asked.items():
            if found.get(key, 0) < count:
                self._waiting.pop(key, None)
                self._in_vain.pop(key, None)

    def next(self) -> float:
        """When `due` may find something without any other call before; infinity: it will not."""
        times = [heap[0][0] for heap in (self._alarms, self._returns) if heap]
        return min(times, default=math.inf)

    def _note(self, queue: str, now: float) -> None:
        """A job with limits is there."""
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
            at = max(self._base(demand.key, now) - (demand.burst - 1) * demand.interval - _LEAD, now + _STEP)
        elif self._room(demand, now) < 1 and demand.key in self._in_use:
            # A job that leaves opens it.
            return
        heapq.heappush(self._alarms, (at, demand.key))

    def _room(self, demand: Demand, now: float) -> int:
        if isinstance(demand, PlaceDemand):
            return demand.places - self._in_use[demand.key]
        ahead = now + _LEAD + (demand.burst - 1) * demand.interval - self._base(demand.key, now)
        return 0 if ahead < 0 else math.floor(ahead / demand.interval) + 1

    def _base(self, key: str, now: float) -> float:
        until = self._paces.get(key)
        return now if until is None else max(until, now - _MADE_UP)

    def _end(self, job_id: str) -> bool:
        """The job's places are free; whether others wait for one of them."""
        self._turned_back.pop(job_id, None)
        places = self._flights.pop(job_id, ())
        for key in places:
            self._in_use[key] -= 1
            if not self._in_use[key]:
                del self._in_use[key]
        closed = {key for key in places if key in self._waiting}
        self._news |= closed
        return bool(closed)
