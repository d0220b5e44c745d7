"""The choice of a job's lane in one process. Pure: times are seconds of a monotonic clock.

A tenant is noisy while at least 30 of its jobs sent by this process wait, and they are at least a tenth of all
waiting jobs in the lanes. Its jobs then go to the slow lane until that was empty, or until the tenant sent nothing
for five minutes. The number of waiting jobs is the last poll of the broker plus what was sent since. If that poll is
older than five seconds, no tenant counts as noisy.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from taskmq.model.topology import WorkQueue, lanes_of, slow_lane

_NOISY_JOBS: Final = 30
_NOISY_SHARE: Final = 0.1
_NOISY_BURST: Final = 500
_QUIET: Final = 300.0
_FRESH: Final = 5.0
_POLL_SECONDS: Final = 1.0
# The count of sent jobs halves in this time, because jobs run even while others keep the lanes filled.
_HALF_LIFE: Final = 10.0
_MOST_TENANTS: Final = 10_000
_NEVER: Final = float("-inf")


def lane_pair(tenant: str, count: int) -> tuple[int, int]:
    """Return the two of `count` lanes (at least 2) for a tenant's jobs; the same in every version and language.

    From the SHA-256 of the tenant in UTF-8: the first four bytes as an unsigned big-endian number modulo `count`; and
    the next four modulo `count - 1`, plus 1 if that is not below the first.
    """
    digest = hashlib.sha256(tenant.encode(errors="replace"), usedforsecurity=False).digest()
    first, second = int.from_bytes(digest[:4]) % count, int.from_bytes(digest[4:8]) % (count - 1)
    return first, second + (second >= first)


class _Tenant(msgspec.Struct):
    """Recent sends of this process for a tenant.

    Attributes:
        lanes: its two lanes.
        waiting: an estimate of its jobs sent by this process that still wait.
        last: when it last sent a job.
        burst: jobs sent since `burst_began`, within a second.
        noisy_since: when its jobs started to go to the slow lane; None if they do not.
    """

    lanes: tuple[str, str]
    waiting: float = 0.0
    last: float = _NEVER
    burst: int = 0
    burst_began: float = _NEVER
    noisy_since: float | None = None


class LaneChoice:
    """The lanes of one queue, as one process chooses them."""

    def __init__(self, queue: WorkQueue) -> None:
        assert queue.lanes is not None
        self._main = queue.name
        self._slow = slow_lane(queue.name)
        self._lanes = lanes_of(queue.name, queue.lanes)
        self._depth: dict[str, float] = dict.fromkeys((*self._lanes, self._slow), 0.0)
        self._total = 0.0
        self._asked = self._learned = _NEVER
        self._tenants: dict[str, _Tenant] = {}

    @property
    def watched(self) -> tuple[str, ...]:
        """The RabbitMQ queues whose lengths are needed."""
        return (*self._lanes, self._slow)

    def choose_lane(self, tenant: str | None, *, now: float, is_delayed: bool = False) -> str:
        """Return the RabbitMQ queue for a job.

        Args:
            tenant: the job's tenant; None for none.
            is_delayed: whether the job reaches its lane later and does not count as waiting.
        """
        if tenant is None:
            return self._main
        known = self._tenants.get(tenant) or self._new(tenant)
        if known.noisy_since is not None and now - known.last < _QUIET:
            known.last = now
            return self._count_job(self._slow, is_delayed=is_delayed)
        known.noisy_since = None
        known.last = now
        if not is_delayed:
            known.waiting += 1
            if now - known.burst_began >= _POLL_SECONDS:
                known.burst_began, known.burst = now, 0
            known.burst += 1
            if self._is_noisy(known, now):
                known.noisy_since = now
                return self._count_job(self._slow, is_delayed=False)
        first, second = known.lanes
        return self._count_job(first if self._depth[first] <= self._depth[second] else second, is_delayed=is_delayed)

    def wants_poll(self, *, now: float) -> bool:
        """Whether the caller should read the lengths and call `learn`; at most once a second."""
        if now - self._asked < _POLL_SECONDS:
            return False
        self._asked = now
        return True

    def learn(self, depths: Mapping[str, int], *, asked: float, now: float) -> None:
        """Record the lengths of the `watched` queues; missing ones are empty.

        Args:
            asked: when the poll started.
        """
        fade = 1.0 if self._learned == _NEVER else 0.5 ** ((now - self._learned) / _HALF_LIFE)
        self._learned = now
        for name in self._depth:
            self._depth[name] = depths.get(name, 0)
        self._total = sum(self._depth.values())
        for name, tenant in list(self._tenants.items()):
            since = tenant.noisy_since
            if since is not None and (now - tenant.last >= _QUIET or (since < asked and not self._depth[self._slow])):
                tenant.noisy_since = None
            tenant.waiting = min(tenant.waiting * fade, self._in_lanes(tenant))
            if tenant.waiting < 1 and tenant.noisy_since is None:
                self._tenants.pop(name, None)

    def _new(self, tenant: str) -> _Tenant:
        if len(self._tenants) >= _MOST_TENANTS:
            # Many tenants send at once or there was no poll; the next poll finds noisy tenants again.
            self._tenants.clear()
        first, second = lane_pair(tenant, len(self._lanes))
        known = self._tenants[tenant] = _Tenant((self._lanes[first], self._lanes[second]))
        return known

    def _is_noisy(self, tenant: _Tenant, now: float) -> bool:
        if now - self._learned > _FRESH:
            return tenant.burst >= _NOISY_BURST
        waits = min(tenant.waiting, self._in_lanes(tenant) + 1)
        return waits >= _NOISY_JOBS and waits >= _NOISY_SHARE * (self._total + 1)

    def _in_lanes(self, tenant: _Tenant) -> float:
        return self._depth[tenant.lanes[0]] + self._depth[tenant.lanes[1]]

    def _count_job(self, lane: str, *, is_delayed: bool) -> str:
        if not is_delayed:
            self._depth[lane] += 1
            self._total += 1
        return lane
