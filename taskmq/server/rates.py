"""How many requests a caller may send: token buckets, kept by each server for itself."""

import math
from typing import Final

import msgspec

__all__ = ["RateLimits"]

_MOST_KEPT: Final = 10_000


class _Bucket(msgspec.Struct):
    left: float
    at: float


class RateLimits:
    """A bucket for each key, which fills up again by `rate` a second.

    Args:
        rate: requests a second; 0: no limit.
        burst: so many may come at once.
    """

    def __init__(self, *, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: str, *, now: float) -> int:
        """Count one request: 0, or the whole seconds to wait until the next may come; then nothing is counted.

        Args:
            now: seconds, by a clock that never goes back.
        """
        wait = self.wait(key, now=now)
        if not wait and self._rate:
            self._buckets[key].left -= 1
        return wait

    def wait(self, key: str, *, now: float) -> int:
        """The whole seconds until a request may come; 0: it may."""
        if not self._rate:
            return 0
        if len(self._buckets) >= _MOST_KEPT and key not in self._buckets:
            self._forget_full(now)
        bucket = self._buckets.setdefault(key, _Bucket(self._burst, now))
        bucket.left = min(bucket.left + (now - bucket.at) * self._rate, self._burst)
        bucket.at = now
        return 0 if bucket.left >= 1 else max(math.ceil((1 - bucket.left) / self._rate), 1)

    def _forget_full(self, now: float) -> None:
        """Forget those that are as good as new, or all where there are too many others."""
        self._buckets = {
            key: bucket
            for key, bucket in self._buckets.items()
            if bucket.left + (now - bucket.at) * self._rate < self._burst
        }
        if len(self._buckets) >= _MOST_KEPT:
            self._buckets.clear()
