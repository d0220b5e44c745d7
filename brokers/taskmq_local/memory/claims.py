"""Keys whose work is done once, in this process."""

import threading
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from taskmq.contracts.stores import Claimed, Done, Held
from taskmq.model.clock import Clock
from taskmq_local.rules.claims import ClaimRecord, claim, complete, release, renew, status


class ClaimTable:
    """Claims by key; one counter issues all tokens, so none is issued twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, ClaimRecord] = {}
        self._expiries: list[tuple[int, str]] = []
        self._last_token = 0

    def claim(
        self, key: str, *, job_id: str, owner: str, lease: int, ttl: int, over: int | None, now: int
    ) -> Claimed:
        with self._lock:
            self._drop_expired(now)
            token = max(self._last_token + 1, now * 1000)
            answer, record = claim(
                self._kept.get(key), job_id=job_id, owner=owner, lease=lease, ttl=ttl, over=over, token=token, now=now
            )
            if record is not None:
                self._last_token = token
                self._keep(key, record)
            return answer

    def find(self, key: str, *, now: int) -> Held | Done | None:
        with self._lock:
            self._drop_expired(now)
            return status(self._kept.get(key), now=now)

    def renew(self, claims: Mapping[str, int], *, lease: int, now: int) -> frozenset[str]:
        with self._lock:
            self._drop_expired(now)
            lost = list[str]()
            for key, token in claims.items():
                record = renew(self._kept.get(key), token=token, lease=lease, now=now)
                if record is None:
                    lost.append(key)
                else:
                    self._keep(key, record)
            return frozenset(lost)

    def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: int, now: int
    ) -> bool:
        with self._lock:
            self._drop_expired(now)
            counts, record = complete(
                self._kept.get(key),
                token=token,
                job_id=job_id,
                content_type=content_type,
                value=value,
                ttl=ttl,
                now=now,
            )
            if record is not None:
                self._keep(key, record)
            return counts

    def release(self, key: str, *, token: int, now: int) -> bool:
        with self._lock:
            counts, record = release(self._kept.get(key), token=token, now=now)
            if record is not None:
                self._keep(key, record)
            return counts

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._expiries.clear()

    def _keep(self, key: str, record: ClaimRecord) -> None:
        self._kept[key] = record
        heappush(self._expiries, (record.expires, key))

    def _drop_expired(self, now: int) -> None:
        while self._expiries and self._expiries[0][0] <= now:
            _, key = heappop(self._expiries)
            kept = self._kept.get(key)
            if kept is not None and kept.expires <= now:
                del self._kept[key]


class MemoryClaims:
    """A `taskmq.contracts.stores.ClaimStore`.

    Args:
        check_open: raises if the state was closed.
    """

    def __init__(self, table: ClaimTable, clock: Clock, *, check_open: Callable[[], None]) -> None:
        self._table = table
        self._clock = clock
        self._check_open = check_open

    async def claim(
        self, key: str, *, job_id: str, owner: str, lease: float, ttl: float, over: int | None = None
    ) -> Claimed:
        self._check_open()
        return self._table.claim(
            key,
            job_id=job_id,
            owner=owner,
            lease=round(lease * 1000),
            ttl=round(ttl * 1000),
            over=over,
            now=self._clock.now_ms(),
        )

    async def find(self, key: str) -> Held | Done | None:
        self._check_open()
        return self._table.find(key, now=self._clock.now_ms())

    async def renew(self, claims: Mapping[str, int], *, lease: float) -> frozenset[str]:
        self._check_open()
        return self._table.renew(claims, lease=round(lease * 1000), now=self._clock.now_ms())

    async def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: float
    ) -> bool:
        self._check_open()
        return self._table.complete(
            key,
            token=token,
            job_id=job_id,
            content_type=content_type,
            value=value,
            ttl=round(ttl * 1000),
            now=self._clock.now_ms(),
        )

    async def release(self, key: str, *, token: int) -> bool:
        self._check_open()
        return self._table.release(key, token=token, now=self._clock.now_ms())
