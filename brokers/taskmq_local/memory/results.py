"""Results and starts of `memory://NAME`, as plain data behind locks."""

import threading
from collections.abc import Callable
from heapq import heappop, heappush

from taskmq.contracts.stores import ResultRecord, remembered_for

Told = Callable[[ResultRecord], None]


class ResultTable:
    """Results by job id, and callers that wait for them. Instants are milliseconds of the caller's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[ResultRecord, int]] = {}
        self._expiries: list[tuple[int, str]] = []
        self._gone: dict[str, int] = {}
        self._forgets: list[tuple[int, str]] = []
        self._waiters: dict[str, list[Told]] = {}

    def put(self, record: ResultRecord, *, ttl: float, now: int) -> None:
        """Store `record` for `ttl` seconds unless a final one exists, and end the waits for it."""
        expires = now + round(ttl * 1000)
        forgotten = now + round(remembered_for(ttl) * 1000)
        with self._lock:
            self._drop_expired(now)
            before = self._kept.get(record.job_id)
            if before is not None and (before[0].state.is_sticky or before[0] == record):
                return
            self._kept[record.job_id] = (record, expires)
            heappush(self._expiries, (expires, record.job_id))
            self._gone[record.job_id] = forgotten
            heappush(self._forgets, (forgotten, record.job_id))
            waiters = list(self._waiters.get(record.job_id, ()))
        for told in waiters:
            told(record)

    def get(self, job_id: str, *, now: int) -> ResultRecord | None:
        with self._lock:
            kept = self._kept.get(job_id)
        return kept[0] if kept is not None and kept[1] > now else None

    def has_expired(self, job_id: str, *, now: int) -> bool:
        with self._lock:
            kept, forgotten = self._kept.get(job_id), self._gone.get(job_id)
        return (kept is None or kept[1] <= now) and forgotten is not None and forgotten > now

    def join(self, job_id: str, told: Told) -> None:
        """Call `told`, from any thread, with each later record of the job."""
        with self._lock:
            self._waiters.setdefault(job_id, []).append(told)

    def leave(self, job_id: str, told: Told) -> None:
        with self._lock:
            waiters = self._waiters.get(job_id, [])
            if told in waiters:
                waiters.remove(told)
            if not waiters:
                self._waiters.pop(job_id, None)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._expiries.clear()
            self._gone.clear()
            self._forgets.clear()

    def _drop_expired(self, now: int) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, job_id = heappop(self._expiries)
            kept = self._kept.get(job_id)
            if kept is not None and kept[1] <= now:
                del self._kept[job_id]
        while self._forgets and self._forgets[0][0] <= now:
            _, job_id = heappop(self._forgets)
            if self._gone.get(job_id, now + 1) <= now:
                del self._gone[job_id]


class StartTable:
    """Runs begun but not ended, by job. Instants are milliseconds of the caller's clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, tuple[int, int]] = {}
        self._expiries: list[tuple[int, str]] = []

    def begin(self, job_id: str, *, expires: int, now: int) -> int:
        with self._lock:
            self._drop_expired(now)
            count = self._begun.get(job_id, (0, 0))[0] + 1
            self._begun[job_id] = (count, expires)
            heappush(self._expiries, (expires, job_id))
            return count

    def end(self, job_id: str) -> None:
        with self._lock:
            self._begun.pop(job_id, None)

    def clear(self) -> None:
        with self._lock:
            self._begun.clear()
            self._expiries.clear()

    def _drop_expired(self, now: int) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, job_id = heappop(self._expiries)
            if self._begun.get(job_id, (0, now + 1))[1] <= now:
                del self._begun[job_id]
