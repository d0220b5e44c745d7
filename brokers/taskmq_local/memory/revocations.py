"""Cancelled jobs, in this process."""

import threading
from collections.abc import Callable

from msgspec.structs import replace

from taskmq.contracts.stores import Revocation
from taskmq.model.clock import Clock


class RevocationTable:
    """Revocations of one `MemoryData`; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Revocation] = {}
        self._cursor = 0

    def add(self, job_id: str, reason: str, *, until: int, now: int) -> None:
        with self._lock:
            for gone in [one.job_id for one in self._kept.values() if one.until <= now]:
                del self._kept[gone]
            if (known := self._kept.get(job_id)) is not None:
                self._kept[job_id] = replace(known, until=max(until, known.until))
                return
            self._cursor += 1
            self._kept[job_id] = Revocation(job_id=job_id, reason=reason, cursor=self._cursor, until=until)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()

    def since(self, cursor: int, *, limit: int, now: int) -> list[Revocation]:
        with self._lock:
            return [one for one in self._kept.values() if one.cursor > cursor and one.until > now][:limit]


class MemoryRevocations:
    """Revoked jobs, kept in memory."""

    def __init__(self, table: RevocationTable, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._check_open = check_open

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        self._check_open()
        now = self._clock.now_ms()
        self._table.add(job_id, reason, until=now + round(ttl * 1000), now=now)

    async def since(self, cursor: int, *, limit: int) -> list[Revocation]:
        self._check_open()
        return self._table.since(cursor, limit=limit, now=self._clock.now_ms())
