"""The record of one limit as plain data."""

from bisect import bisect_left, insort

from taskmq_local.rules.limits import LAPSE


class LineRecord:
    """A `taskmq_local.rules.limits.LimitRecord` that a simulation of many thousand jobs can afford."""

    def __init__(self) -> None:
        self.arrival = 0.0
        self.peak = 0.0
        self.spill = 0.0
        self.average = 0.0
        self.last = 0.0
        self.held: dict[str, float] = {}
        self._promises: dict[str, float] = {}
        self._line: list[tuple[float, str]] = []
        self._order: list[int] = []
        self._places: dict[str, int] = {}
        self._last_place = 0

    def promise_of(self, job_id: str) -> float | None:
        return self._promises.get(job_id)

    def waiting(self) -> int:
        return len(self._line)

    def count(self, since: float, before: float) -> int:
        return max(bisect_left(self._line, (before,)) - bisect_left(self._line, (since,)), 0)

    def rank(self, job_id: str, since: float) -> int:
        place = self._places[job_id]
        gone = sum(self._places[late] < place for _, late in self._line[: bisect_left(self._line, (since,))])
        return bisect_left(self._order, place) - gone

    def promise(self, job_id: str, instant: float) -> None:
        if job_id in self._promises:
            self._take_out(job_id)
        else:
            self._last_place += 1
            self._places[job_id] = self._last_place
            self._order.append(self._last_place)
        self._promises[job_id] = instant
        insort(self._line, (instant, job_id))

    def forget(self, job_id: str) -> None:
        if job_id in self._promises:
            self._take_out(job_id)
            del self._order[bisect_left(self._order, self._places.pop(job_id))]

    def _take_out(self, job_id: str) -> None:
        del self._line[bisect_left(self._line, (self._promises.pop(job_id), job_id))]

    def holds(self) -> list[str]:
        return list(self.held)

    def hold(self, hold: str, until: float) -> None:
        self.held[hold] = until

    def drop_lapsed(self, now: float) -> None:
        if ended := [hold for hold, until in self.held.items() if until <= now]:
            for hold in ended:
                del self.held[hold]
        for _, job_id in self._line[: bisect_left(self._line, (now - LAPSE,))]:
            self.forget(job_id)
