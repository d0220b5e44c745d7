"""Notes about jobs of `memory://NAME`: progress, checkpoints and revocations."""

from typing import Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.stores import BegunRun, ProgressRecord, Revocation
from taskmq_local.memory.store import Expiring, MemoryStore

_REMEMBERED_MS: Final = 60_000


class MemoryProgress(MemoryStore[Expiring[ProgressRecord]]):
    """The last progress of each job."""

    async def report(self, record: ProgressRecord, *, ttl: float) -> None:
        now = self._enter()
        with self._data.lock:
            before = self._data.find(record.job_id, now=now)
            if before is None or before.started <= record.started or before.attempt < record.attempt:
                self._data.put(record.job_id, record, expires=now + round(ttl * 1000))

    async def find(self, job_id: str) -> ProgressRecord | None:
        return self._data.find(job_id, now=self._enter())


class SavedValues(msgspec.Struct):
    """Values that the runs of one job saved, and the token of its last run."""

    token: int
    attempt: int
    values: dict[str, bytes]


class MemoryCheckpoints(MemoryStore[Expiring[SavedValues]]):
    """Values that the runs of jobs saved."""

    async def begin(self, job_id: str, *, attempt: int, ttl: float) -> BegunRun | None:
        now = self._enter()
        with self._data.lock:
            saved = self._data.find(job_id, now=now)
            if saved is None:
                saved = SavedValues(now, attempt, {})
            elif saved.attempt > attempt > 1:
                return None
            else:
                saved.token, saved.attempt = max(saved.token + 1, now), attempt
            self._data.put(job_id, saved, expires=now + round(ttl * 1000))
            return BegunRun(saved.token, dict(saved.values))

    async def save(self, job_id: str, name: str, value: bytes, *, token: int, ttl: float) -> bool:
        now = self._enter()
        with self._data.lock:
            saved = self._data.find(job_id, now=now)
            if saved is None or saved.token != token:
                return False
            saved.values[name] = value
            self._data.put(job_id, saved, expires=now + round(ttl * 1000))
            return True

    async def forget(self, job_id: str, *, token: int) -> None:
        now = self._enter()
        with self._data.lock:
            saved = self._data.find(job_id, now=now)
            if saved is not None and saved.token == token:
                # The next token is reserved and remembered for a while, so that tokens grow however fast runs follow
                # each other.
                self._data.put(job_id, SavedValues(token + 1, 0, {}), expires=now + _REMEMBERED_MS)


class MemoryRevocations(MemoryStore[Expiring[Revocation]]):
    """Revoked jobs, kept in memory in the order of their revocation."""

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        now = self._enter()
        until = now + round(ttl * 1000)
        with self._data.lock:
            known = self._data.find(job_id, now=now)
            if known is None:
                made = Revocation(job_id=job_id, reason=reason, cursor=self._data.next_token(), until=until)
            else:
                made = replace(known, until=max(until, known.until))
            self._data.put(job_id, made, expires=made.until)

    async def since(self, cursor: int, *, limit: int) -> list[Revocation]:
        return [one for _, one in self._data.items(now=self._enter()) if one.cursor > cursor][:limit]
