"""Window of a queue: the number of its jobs that may be in flight. Pure.

It is small, so that order, shares, changes and cancels are decided in the store up to the last moment, but large
enough that no worker waits for the next dispatch.
"""

from math import ceil, exp
from typing import Final, Literal

FLOOR: Final = 64
"""Window of a queue without known live workers."""

# Jobs that wait at the broker in addition to one per slot: up to as many again for short runs. Each of them can no
# longer be overtaken.
_WAITING: Final = 0.25
_WAITING_AT_LEAST: Final = 4
_UNTIL_NEXT: Final = 0.25
# Part of the addition for short runs that has to be used up before more is dispatched, because small batches are
# expensive.
_USED_UP: Final = 0.5
# Seconds of the present rate, for very short jobs: they cover the way from the dispatch to the recorded end. A way
# longer than three quarters of them would shrink the window, which slows the rate, which shrinks the window.
_SECONDS: Final = 0.1
_LONGEST: Final = 1.0
# Addition for the time of all round trips together. A job waits for two publishes, and up to twice for a record.
_TRIPS: Final = 3
# Weight of the newest round trip in the moving average.
_NEWEST: Final = 0.2
_MEMORY: Final = 0.65
_INTERVAL: Final = 0.05


class RoundTrips:
    """Recent durations of a partition's round trips: to dispatch jobs, to publish them, and to record reports."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @property
    def total(self) -> float:
        """Seconds of one round trip of each kind together."""
        return sum(self._seconds.values())

    def record(self, kind: Literal["dispatch", "publish", "record"], seconds: float) -> None:
        """Record the duration of a round trip."""
        before = self._seconds.get(kind, seconds)
        self._seconds[kind] = before + _NEWEST * (seconds - before)


class Window:
    """The window of one queue. Times are seconds.

    It is a quarter more than the live worker slots, up to twice as many for short runs, or 100 ms of the present
    rate; longer if round trips are slow, up to a second.
    """

    def __init__(self, trips: RoundTrips | None = None) -> None:
        self._trips = trips or RoundTrips()
        self._average = 0.0
        # Of the last interval, and the lower one of the last two.
        self._newest = 0.0
        self._steady = 0.0
        self._ended = 0
        self._since: float | None = None

    @property
    def rate(self) -> float:
        """Jobs that leave per second: their moving average, or a higher rate of the last two intervals."""
        return max(self._average, self._steady)

    def record_ended(self, count: int, *, now: float) -> None:
        """Record that jobs have left."""
        self._roll(now)
        self._ended += count

    def size(self, slots: int | None, *, now: float) -> int:
        """Return how many jobs may be in flight.

        Args:
            slots: live worker slots; None: unknown.
        """
        self._roll(now)
        waiting = 0 if slots is None else min(slots, ceil(self.rate * _UNTIL_NEXT))
        covered = min(_SECONDS + _TRIPS * self._trips.total, _LONGEST)
        return max(_least(slots), (slots or 0) + waiting, ceil(self.rate * covered))

    def room(self, slots: int | None, in_flight: int, *, now: float) -> int:
        """Return how many more jobs may be dispatched now.
        If the window is larger because of short runs, it is filled again once half of that addition has ended.

        Args:
            slots: live worker slots; None: unknown.
            in_flight: number of jobs in flight.
        """
        size = self.size(slots, now=now)
        room = size - in_flight
        return room if room >= _USED_UP * (size - _least(slots)) else 0

    def _roll(self, now: float) -> None:
        if self._since is None:
            self._since = now
            return
        passed = now - self._since
        if passed < _INTERVAL:
            return
        kept = exp(-passed / _MEMORY)
        before, self._newest = self._newest, self._ended / passed
        self._steady = min(before, self._newest)
        self._average = self._average * kept + self._newest * (1 - kept)
        self._ended, self._since = 0, now


def _least(slots: int | None) -> int:
    """Return the size of a window for long runs."""
    if slots is None:
        return FLOOR
    return slots + min(slots, max(_WAITING_AT_LEAST, ceil(slots * _WAITING)))
