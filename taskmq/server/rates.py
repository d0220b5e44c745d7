"""Rate limits: token buckets, separate for each server."""

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from litestar.connection import ASGIConnection

from taskmq.app import TaskMQ
from taskmq.errors import NotAuthenticated
from taskmq.model.identity import Identity, digest, network_of
from taskmq.server.problems import Problem

_MOST_KEPT: Final = 10_000
_OF_USER: Final = 4
_ALL: Final = "all addresses"


class _Bucket(msgspec.Struct):
    left: float
    at: float


class RateLimits:
    """Token buckets by key, each refilled at `rate` per second.

    Args:
        rate: requests per second; 0 for no limit.
        burst: the size of each bucket.
    """

    def __init__(self, *, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: str, *, now: float, leaving: float = 0.0) -> int:
        """Count one request and return 0, or return the whole seconds to wait, without counting it.

        Args:
            now: seconds of a monotonic clock.
            leaving: the fraction of the burst to leave for others.
        """
        wait = self.wait(key, now=now, leaving=leaving)
        if not wait and self._rate:
            self._buckets[key].left -= 1
        return wait

    def give_back(self, key: str) -> None:
        """Refund a request that turned out to cost nothing."""
        if (bucket := self._buckets.get(key)) is not None:
            bucket.left = min(bucket.left + 1, self._burst)

    def wait(self, key: str, *, now: float, leaving: float = 0.0) -> int:
        """Return the whole seconds until the next request is allowed; 0 if it is allowed now."""
        if not self._rate:
            return 0
        needed = 1 + leaving * self._burst
        if len(self._buckets) >= _MOST_KEPT and key not in self._buckets:
            self._forget_full(now)
        bucket = self._buckets.setdefault(key, _Bucket(self._burst, now))
        bucket.left = min(bucket.left + (now - bucket.at) * self._rate, self._burst)
        bucket.at = now
        return 0 if bucket.left >= needed else max(math.ceil((needed - bucket.left) / self._rate), 1)

    def _forget_full(self, now: float) -> None:
        """Remove full buckets, or all of them if too many others remain."""
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if bucket.left + (now - bucket.at) * self._rate < self._burst
        }
        if len(self._buckets) >= _MOST_KEPT:
            self._buckets.clear()


class RequestLimits:
    """The rate limits of one server, for credentials and for unauthenticated callers.

    A credential that was valid here before has its own limit, and its user has one limit for all credentials
    together. No other caller can use these up. A new credential costs a lookup in the store. Failed lookups count
    for the address, 10 a second. An address that used these up shares the 100 a second of all unknown callers, half
    of which is reserved for other addresses. Password sign-ins are recognised by name and address in the same way.

    IPv6 addresses count by network (/64), because one client owns all addresses of it.
    """

    def __init__(self, rate: float) -> None:
        self._requests = RateLimits(rate=rate, burst=max(rate * 10, 1))
        # Per user, because a user can create any number of tokens.
        self._users = RateLimits(rate=rate * _OF_USER, burst=max(rate * _OF_USER * 10, 1))
        self._strangers = RateLimits(rate=min(rate, 10.0), burst=min(max(rate * 10, 1), 100.0))
        self._shared = RateLimits(rate=min(rate, 100.0), burst=min(max(rate * 10, 1), 200.0))
        self._recognised: dict[bytes, None] = {}

    def recognise(self, credential: str) -> None:
        """Remember a valid credential, so that it gets its own limit."""
        self._remember(digest(credential))

    def take_call(self, connection: ASGIConnection[Any, Any, Any, Any]) -> None:
        """Count a call of an address.

        Raises:
            Problem: there were too many; the message says how long to wait.
        """
        network, now = _network(connection), _now(connection)
        if self._strangers.take(network, now=now):
            _check_wait(self._shared.take(_ALL, now=now, leaving=0.5))

    def take_login(self, connection: ASGIConnection[Any, Any, Any, Any], name: str) -> str:
        """Count a password sign-in. Returns the key to pass to `recognise` if it succeeds.

        Raises:
            Problem: there were too many; the message says how long to wait.
        """
        pair = f"{name.casefold()}\0{_network(connection)}"
        if digest(pair) in self._recognised:
            _check_wait(self._strangers.take(pair, now=_now(connection)))
        else:
            self.take_call(connection)
        return pair

    async def identify(
        self,
        connection: ASGIConnection[Any, Any, Any, Any],
        find: Callable[[], Awaitable[Identity]],
        *,
        credential: str | None,
    ) -> Identity:
        """Identify the owner of a credential. An invalid one counts for the address, a valid one for itself.

        Args:
            credential: None if the store is not asked, as for a signature.

        Raises:
            NotAuthenticated: the credential is invalid.
            Problem: there were too many; the message says how long to wait.
        """
        network, now = _network(connection), _now(connection)
        key = None if credential is None else digest(credential)
        is_new = key is not None and key not in self._recognised
        if is_new:
            is_spent = self._strangers.wait(network, now=now) > 0
            _check_wait(self._shared.take(_ALL, now=now, leaving=0.5 if is_spent else 0.0))
        try:
            identity = await find()
        except NotAuthenticated:
            if key is not None:
                self._recognised.pop(key, None)
            wait = self._strangers.take(network, now=now)
            if not is_new:
                _check_wait(wait)
            raise
        if is_new:
            self._shared.give_back(_ALL)
        if key is not None:
            self._remember(key)
        _check_wait(self._requests.take(identity.credential or identity.user_id, now=now))
        _check_wait(self._users.take(identity.user_id, now=now))
        return identity

    def _remember(self, key: bytes) -> None:
        # Evict the least recently used credential.
        self._recognised.pop(key, None)
        if len(self._recognised) >= _MOST_KEPT:
            self._recognised.pop(next(iter(self._recognised)))
        self._recognised[key] = None


def _network(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    return network_of("" if connection.client is None else connection.client.host)


def _now(connection: ASGIConnection[Any, Any, Any, Any]) -> float:
    app: TaskMQ = connection.app.state["app"]
    return app.sessions.clock.monotonic()


def _check_wait(seconds: int) -> None:
    if seconds:
        raise Problem(
            429, "too_many_requests", f"too many requests: wait {seconds} s", headers={"Retry-After": str(seconds)}
        )
