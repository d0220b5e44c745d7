"""Leases on keys, in this process."""

import msgspec
from msgspec.structs import replace

from taskmq.contracts.stores import Lease, members_prefix
from taskmq_local.memory.store import Expiring, MemoryStore


class HeldLease(msgspec.Struct, frozen=True):
    """A lease on one key, until an instant in milliseconds."""

    owner: str
    token: int
    until: int
    note: str


class MemoryLeases(MemoryStore[Expiring[HeldLease]]):
    """A `taskmq.contracts.stores.Coordinator`. All keys share one counter of tokens."""

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        now = self._enter()
        with self._data.lock:
            if (held := self._data.find(key, now=now)) is not None:
                return _to_lease(held, now)
            made = HeldLease(owner, self._data.next_token(), now + round(seconds * 1000), note)
            self._data.put(key, made, expires=made.until)
            return made.token

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        now = self._enter()
        with self._data.lock:
            held = self._data.find(key, now=now)
            if held is None or held.token != token:
                return False
            until = now + round(seconds * 1000)
            self._data.put(key, replace(held, until=until, note=held.note if note is None else note), expires=until)
            return True

    async def release(self, key: str, *, token: int) -> None:
        now = self._enter()
        with self._data.lock:
            held = self._data.find(key, now=now)
            if held is not None and held.token == token:
                self._data.remove(key)

    async def find(self, key: str) -> Lease | None:
        now = self._enter()
        held = self._data.find(key, now=now)
        return None if held is None else _to_lease(held, now)

    async def members(self, group: str) -> dict[str, Lease]:
        now = self._enter()
        prefix = members_prefix(group)
        return {
            key.removeprefix(prefix): _to_lease(held, now)
            for key, held in sorted(self._data.items(now=now), key=lambda entry: entry[0])
            if key.startswith(prefix)
        }


def _to_lease(held: HeldLease, now: int) -> Lease:
    return Lease(owner=held.owner, token=held.token, left=(held.until - now) / 1000, note=held.note)
