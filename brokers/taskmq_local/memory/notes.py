"""Progress and checkpoints of `memory://NAME`."""

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

import msgspec

from taskmq.contracts.stores import BegunRun, ProgressRecord
from taskmq.model.clock import Clock

_REMEMBERED_MS: Final = 60_000


class ProgressTable:
    """The last progress of each job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[ProgressRecord, int]] = {}
        self._expiries: list[tuple[int, str]] = []

    def report(self, record: ProgressRecord, *, expires: int, now: int) -> None:
        with self._lock:
            self._drop_expired(now)
            before = self._kept.get(record.job_id)
            if before is not None and before[0].started > record.started and before[0].attempt >= record.attempt:
                return
            self._kept[record.job_id] = (record, expires)
            if before is None:
                heappush(self._expiries, (expires, record.job_id))

    def find(self, job_id: str, *, now: int) -> ProgressRecord | None:
        with self._lock:
            kept = self._kept.get(job_id)
            return None if kept is None or kept[1] <= now else kept[0]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._expiries.clear()

    def _drop_expired(self, now: int) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, job_id = heappop(self._expiries)
            _, expires = self._kept[job_id]
            if expires <= now:
                del self._kept[job_id]
            else:
                heappush(self._expiries, (expires, job_id))


class _Saved(msgspec.Struct):
    token: int
    attempt: int
    expires: int
    values: dict[str, bytes]


class CheckpointTable:
    """Values that each job's runs saved, and the token of its last run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, _Saved] = {}
        self._expiries: list[tuple[int, str]] = []

    def begin(self, job_id: str, *, attempt: int, expires: int, now: int) -> BegunRun | None:
        with self._lock:
            self._drop_expired(now)
            saved = self._kept.get(job_id)
            if saved is None:
                saved = self._kept[job_id] = _Saved(now, attempt, expires, {})
                heappush(self._expiries, (expires, job_id))
            elif saved.attempt > attempt > 1:
                return None
            else:
                saved.token, saved.attempt, saved.expires = max(saved.token + 1, now), attempt, expires
            return BegunRun(saved.token, dict(saved.values))

    def save(self, job_id: str, name: str, value: bytes, *, token: int, expires: int, now: int) -> bool:
        with self._lock:
            saved = self._kept.get(job_id)
            if saved is None or saved.token != token or saved.expires <= now:
                return False
            saved.values[name] = value
            saved.expires = expires
            return True

    def forget(self, job_id: str, *, token: int, now: int) -> None:
        with self._lock:
            saved = self._kept.get(job_id)
            if saved is not None and saved.token == token:
                # The next token is reserved and remembered for a while, so that tokens grow however fast runs follow
                # each other.
                self._kept[job_id] = _Saved(token + 1, 0, now + _REMEMBERED_MS, {})
                heappush(self._expiries, (now + _REMEMBERED_MS, job_id))

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._expiries.clear()

    def _drop_expired(self, now: int) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, job_id = heappop(self._expiries)
            saved = self._kept.get(job_id)
            if saved is None:
                continue
            if saved.expires <= now:
                del self._kept[job_id]
            else:
                heappush(self._expiries, (saved.expires, job_id))


class MemoryProgress:
    """The last progress of each job."""

    def __init__(self, table: ProgressTable, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._check_open = check_open

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        self._check_open()
        now = self._clock.now_ms()
        self._table.report(record, expires=now + round(ttl * 1000), now=now)

    async def find(self, job_id: str) -> ProgressRecord | None:
        self._check_open()
        return self._table.find(job_id, now=self._clock.now_ms())


class MemoryCheckpoints:
    """Values that the runs of jobs saved."""

    def __init__(self, table: CheckpointTable, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._check_open = check_open

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        self._check_open()
        now = self._clock.now_ms()
        return self._table.begin(job_id, attempt=attempt, expires=now + round(ttl * 1000), now=now)

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        self._check_open()
        now = self._clock.now_ms()
        return self._table.save(job_id, name, value, token=token, expires=now + round(ttl * 1000), now=now)

    async def forget(self, job_id: str, *, token: int) -> None:
        self._check_open()
        self._table.forget(job_id, token=token, now=self._clock.now_ms())
