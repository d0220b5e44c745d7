"""Keys whose work is done once, in this process."""

from collections.abc import Mapping

from taskmq.contracts.stores import Claimed, Done, Held
from taskmq_local.memory.store import Expiring, MemoryStore
from taskmq_local.rules.claims import ClaimRecord, claim, complete, release, renew, status


class MemoryClaims(MemoryStore[Expiring[ClaimRecord]]):
    """A `taskmq.contracts.stores.ClaimStore`. All keys share one counter of tokens."""

    async def claim(
        self, key: str, *, job_id: str, owner: str, lease: float, ttl: float, over: int | None = None
    ) -> Claimed:
        now = self._enter()
        with self._data.lock:
            answer, record = claim(
                self._data.find(key, now=now),
                job_id=job_id,
                owner=owner,
                lease=round(lease * 1000),
                ttl=round(ttl * 1000),
                over=over,
                token=self._data.next_token(now * 1000),
                now=now,
            )
            self._put(key, record)
            return answer

    async def find(self, key: str) -> Held | Done | None:
        now = self._enter()
        return status(self._data.find(key, now=now), now=now)

    async def renew(self, claims: Mapping[str, int], *, lease: float) -> frozenset[str]:
        now = self._enter()
        lost = list[str]()
        with self._data.lock:
            for key, token in claims.items():
                record = renew(self._data.find(key, now=now), token=token, lease=round(lease * 1000), now=now)
                if record is None:
                    lost.append(key)
                self._put(key, record)
        return frozenset(lost)

    async def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: float
    ) -> bool:
        now = self._enter()
        with self._data.lock:
            counts, record = complete(
                self._data.find(key, now=now),
                token=token,
                job_id=job_id,
                content_type=content_type,
                value=value,
                ttl=round(ttl * 1000),
                now=now,
            )
            self._put(key, record)
            return counts

    async def release(self, key: str, *, token: int) -> bool:
        now = self._enter()
        with self._data.lock:
            counts, record = release(self._data.find(key, now=now), token=token, now=now)
            self._put(key, record)
            return counts

    def _put(self, key: str, record: ClaimRecord | None) -> None:
        if record is not None:
            self._data.put(key, record, expires=record.expires)
