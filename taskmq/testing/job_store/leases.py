"""Model of leases over a dictionary, at the caller's time."""

import msgspec

from taskmq.contracts.stores import Lease


class _Held(msgspec.Struct):
    owner: str
    token: int
    until: int


class LeaseModel:
    """Leases of partitions, as `Coordinator` guarantees them. Instants are ms since the epoch."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._last_token = 0

    def acquire(self, key: str, *, owner: str, seconds: float, now: int) -> int | Lease:
        if (lease := self.find(key, now=now)) is not None:
            return lease
        self._last_token += 1
        self._held[key] = _Held(owner, self._last_token, now + round(seconds * 1000))
        return self._last_token

    def release(self, key: str, *, token: int) -> None:
        if self.has(key, token):
            del self._held[key]

    def find(self, key: str, *, now: int) -> Lease | None:
        held = self._held.get(key)
        if held is None or held.until <= now:
            return None
        return Lease(owner=held.owner, token=held.token, left=(held.until - now) / 1000, note="")

    def has(self, key: str, token: int) -> bool:
        """Return whether the token still holds the key."""
        held = self._held.get(key)
        return held is not None and held.token == token
