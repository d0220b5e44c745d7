"""Leases on keys, in this process."""

import threading
from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from taskmq.contracts.stores import Lease, members_prefix
from taskmq.model.clock import Clock


class _Held(msgspec.Struct):
    owner: str
    token: int
    until: int
    note: str


class LeaseTable:
    """Leases by key. Instants are milliseconds of the caller's clock. One counter issues all tokens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._ends: list[tuple[int, str]] = []
        self._last_token = 0

    def acquire(self, key: str, *, owner: str, until: int, note: str, now: int) -> int | Lease:
        with self._lock:
            self._drop_ended(now)
            if (held := self._held.get(key)) is not None:
                return _to_lease(held, now)
            self._last_token += 1
            self._held[key] = _Held(owner, self._last_token, until, note)
            heappush(self._ends, (until, key))
            return self._last_token

    def renew(self, key: str, *, token: int, until: int, note: str | None, now: int) -> bool:
        with self._lock:
            self._drop_ended(now)
            held = self._held.get(key)
            if held is None or held.token != token:
                return False
            held.until = until
            held.note = held.note if note is None else note
            heappush(self._ends, (until, key))
            return True

    def release(self, key: str, *, token: int) -> None:
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.token == token:
                del self._held[key]

    def find(self, key: str, *, now: int) -> Lease | None:
        with self._lock:
            self._drop_ended(now)
            held = self._held.get(key)
            return None if held is None else _to_lease(held, now)

    def members(self, group: str, *, now: int) -> dict[str, Lease]:
        prefix = members_prefix(group)
        with self._lock:
            self._drop_ended(now)
            return {
                key.removeprefix(prefix): _to_lease(held, now)
                for key, held in sorted(self._held.items(), key=lambda entry: entry[0])
                if key.startswith(prefix)
            }

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._ends.clear()

    def _drop_ended(self, now: int) -> None:
        while self._ends and self._ends[0][0] <= now:
            _, key = heappop(self._ends)
            held = self._held.get(key)
            if held is not None and held.until <= now:
                del self._held[key]


class MemoryLeases:
    """A `taskmq.contracts.stores.Coordinator`.

    Args:
        check_open: raises if the state was closed.
    """

    def __init__(self, table: LeaseTable, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._check_open = check_open

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        self._check_open()
        now = self._clock.now_ms()
        return self._table.acquire(key, owner=owner, until=now + round(seconds * 1000), note=note, now=now)

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        self._check_open()
        now = self._clock.now_ms()
        return self._table.renew(key, token=token, until=now + round(seconds * 1000), note=note, now=now)

    async def release(self, key: str, *, token: int) -> None:
        self._check_open()
        self._table.release(key, token=token)

    async def find(self, key: str) -> Lease | None:
        self._check_open()
        return self._table.find(key, now=self._clock.now_ms())

    async def members(self, group: str) -> dict[str, Lease]:
        self._check_open()
        return self._table.members(group, now=self._clock.now_ms())


def _to_lease(held: _Held, now: int) -> Lease:
    return Lease(owner=held.owner, token=held.token, left=(held.until - now) / 1000, note=held.note)
