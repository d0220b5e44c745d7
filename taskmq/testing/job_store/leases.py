"""Leases over a dictionary; the caller says what time it is."""

import msgspec

from taskmq.contracts.stores import Lease, members_prefix

__all__ = ["LeaseModel"]


class _Held(msgspec.Struct):
    owner: str
    token: int
    until: int
    note: str


class LeaseModel:
    """What `Coordinator` promises. Instants are ms since the epoch."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._last_token = 0

    def acquire(self, key: str, *, owner: str, seconds: float, note: str = "", now: int) -> int | Lease:
        if (lease := self.find(key, now=now)) is not None:
            return lease
        self._last_token += 1
        self._held[key] = _Held(owner, self._last_token, now + round(seconds * 1000), note)
        return self._last_token

    def renew(self, key: str, *, token: int, seconds: float, note: str | None = None, now: int) -> bool:
        if (lease := self.find(key, now=now)) is None or lease.token != token:
            return False
        note = lease.note if note is None else note
        self._held[key] = _Held(lease.owner, token, now + round(seconds * 1000), note)
        return True

    def release(self, key: str, *, token: int) -> None:
        if self.has(key, token):
            del self._held[key]

    def find(self, key: str, *, now: int) -> Lease | None:
        held = self._held.get(key)
        if held is None or held.until <= now:
            return None
        return Lease(owner=held.owner, token=held.token, left=(held.until - now) / 1000, note=held.note)

    def members(self, group: str, *, now: int) -> dict[str, Lease]:
        prefix = members_prefix(group)
        found = {
            key.removeprefix(prefix): self.find(key, now=now) for key in sorted(self._held) if key.startswith(prefix)
        }
        return {member: lease for member, lease in found.items() if lease is not None}

    def has(self, key: str, token: int) -> bool:
        """Whether the key was not taken since, and the holder has not released it."""
        held = self._held.get(key)
        return held is not None and held.token == token
