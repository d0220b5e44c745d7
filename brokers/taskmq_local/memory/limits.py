"""Limits of `memory://NAME`."""

import threading
from bisect import bisect_left, insort
from collections.abc import Sequence

from taskmq.contracts.stores import Demand, LimitEntry, LimitUsage, PlaceDemand
from taskmq_local.memory.store import MemoryStore
from taskmq_local.rules.limits import FORGOTTEN, LAPSE, acquire, mean

_SWEEP = 256


class _Limit:
    """A `taskmq_local.rules.limits.Record`."""

    def __init__(self) -> None:
        self.arrival = 0.0
        self.peak = 0.0
        self.spill = 0.0
        self.average = 0.0
        self.last = 0.0
        self.used = 0.0
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

    def matters(self, now: float) -> bool:
        return bool(self.held or self._line) or max(self.used + FORGOTTEN, self.arrival, self.spill) > now


class LimitTable:
    """Limits by key. Instants are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: dict[str, _Limit] = {}
        self._made = 0

    def acquire(
        self, job_id: str, demands: Sequence[Demand], *, hold: str, seconds: float, patience: float, now: float
    ) -> LimitEntry:
        with self._lock:
            records = [(demand, self._limit(demand.key, now)) for demand in demands]
            return acquire(job_id, records, hold=hold, seconds=seconds, patience=patience, now=now)

    def renew(self, holds: Sequence[tuple[str, PlaceDemand]], *, until: float, now: float) -> list[bool]:
        answers: list[bool] = []
        with self._lock:
            for hold, demand in holds:
                limit = self._limit(demand.key, now)
                if is_held := hold in limit.held or len(limit.held) < demand.places:
                    limit.hold(hold, until)
                answers.append(is_held)
        return answers

    def release(self, hold: str, keys: Sequence[str], *, held: float | None) -> None:
        with self._lock:
            for key in keys:
                limit = self._limits.get(key)
                if limit is not None and limit.held.pop(hold, None) is not None and held is not None:
                    limit.average = mean(limit.average, held)

    def withdraw(self, job_id: str, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                if (limit := self._limits.get(key)) is not None:
                    limit.forget(job_id)

    def usage(self, key: str, *, now: float) -> LimitUsage:
        with self._lock:
            limit = self._limits.get(key)
            if limit is None:
                return LimitUsage(held=0, waiting=0)
            limit.drop_lapsed(now)
            return LimitUsage(held=len(limit.held), waiting=limit.waiting())

    def clear(self) -> None:
        with self._lock:
            self._limits.clear()

    def _limit(self, key: str, now: float) -> _Limit:
        limit = self._limits.get(key)
        if limit is None:
            self._made += 1
            if self._made % _SWEEP == 0:
                self._drop_forgotten(now)
            limit = self._limits[key] = _Limit()
        limit.drop_lapsed(now)
        limit.used = now
        return limit

    def _drop_forgotten(self, now: float) -> None:
        for limit in self._limits.values():
            limit.drop_lapsed(now)
        self._limits = {key: limit for key, limit in self._limits.items() if limit.matters(now)}


class MemoryLimits(MemoryStore[LimitTable]):
    """A `taskmq.contracts.stores.LimitStore`."""

    async def acquire(
        self, job_id: str, demands: Sequence[Demand], *, hold: str, seconds: float, patience: float
    ) -> LimitEntry:
        now = self._enter() / 1000
        return self._data.acquire(job_id, demands, hold=hold, seconds=seconds, patience=patience, now=now)

    async def renew(self, holds: Sequence[tuple[str, PlaceDemand]], *, seconds: float) -> list[bool]:
        now = self._enter() / 1000
        return self._data.renew(holds, until=now + seconds, now=now)

    async def release(self, hold: str, keys: Sequence[str], *, held: float | None) -> None:
        self._enter()
        self._data.release(hold, keys, held=held)

    async def withdraw(self, job_id: str, keys: Sequence[str]) -> None:
        self._enter()
        self._data.withdraw(job_id, keys)

    async def usage(self, key: str) -> LimitUsage:
        return self._data.usage(key, now=self._enter() / 1000)
