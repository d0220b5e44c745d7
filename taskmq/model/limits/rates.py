"""Rates of starts by the generic cell rate algorithm: the decisions of every store, and of schedulers. Pure.

A rate has one number: `until`, the instant until which it is used up. Each start adds one interval. Instants are
seconds of any one clock.

    plain   starts follow one another evenly. They may be up to `LEAD` early, as the job takes that long to reach a
            worker, and make up for at most `MADE_UP`
    strict  each start has an instant of its own, at least the lead ahead, which the worker waits for
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

LEAD: Final = 0.1
"""Seconds by which jobs under a rate are dispatched early."""
MADE_UP: Final = 0.15
"""Unused seconds of a plain rate that later starts may make up for."""


class RateDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A start under a rate.

    Attributes:
        key: the limit.
        interval: seconds between two starts.
        burst: maximum of starts at once after a long pause; at least 1.
        strict: whether no start is early, and none that was missed is made up for: granted starts are never closer
            than `interval`.
    """

    key: str
    interval: float
    burst: int = 1
    strict: bool = False


def first_start(demand: RateDemand, until: float, *, now: float, lead: float = LEAD) -> float:
    """Return the earliest start of a rate that is used up until an instant.

    Args:
        lead: seconds that a job takes to reach its worker, at most.
    """
    return max(until, now + lead if demand.strict else now - MADE_UP)


def count_starts(demand: RateDemand, until: float, *, now: float, lead: float = LEAD) -> int:
    """Return how many starts the rate grants now."""
    ahead = -wait_for_start(demand, until, now=now, lead=lead)
    return 0 if ahead < 0 else math.floor(ahead / demand.interval) + 1


def wait_for_start(demand: RateDemand, until: float, *, now: float, lead: float = LEAD) -> float:
    """Return the seconds until the rate grants its next start; 0 or less: now."""
    return first_start(demand, until, now=now, lead=lead) - _latest_start(demand, now=now, lead=lead)


def used_until(demand: RateDemand, wait: float, *, now: float, lead: float = LEAD) -> float:
    """Return until when a rate is used up that grants its next start after `wait` seconds."""
    return _latest_start(demand, now=now, lead=lead) + wait


def _latest_start(demand: RateDemand, *, now: float, lead: float) -> float:
    # Strict starts are granted further ahead than jobs travel, so schedulers have time to ask in turns. Meanwhile
    # jobs wait in their slots.
    return now + lead + 2 * min(lead, LEAD) if demand.strict else now + LEAD + (demand.burst - 1) * demand.interval


class RateBook:
    """Grants of starts, in the order of the requests.

    Args:
        used: until when each rate is used up, seconds; a rate that is missing is unused.
        lead: as in `first_start`.

    Attributes:
        used: with the granted starts.
    """

    def __init__(self, used: Mapping[str, float], *, now: float, lead: float = LEAD) -> None:
        self.used: dict[str, float] = dict(used)
        self._now = now
        self._lead = lead

    def find_closed(self, demands: Iterable[RateDemand]) -> str:
        """Return the first rate without room for one of these demands; "" if all of them have room."""
        return next((demand.key for demand in demands if self.wait(demand) > 0), "")

    def wait(self, demand: RateDemand) -> float:
        """Return the seconds until the rate has room; 0 or less: now."""
        return wait_for_start(demand, self._until(demand), now=self._now, lead=self._lead)

    def take(self, demands: Sequence[RateDemand]) -> float | None:
        """Count one start under these rates, even if they have no room.

        Returns its instant, which is the latest of the strict rates; None without one.
        """
        starts = [
            (demand, first_start(demand, self._until(demand), now=self._now, lead=self._lead)) for demand in demands
        ]
        instant = max((start for demand, start in starts if demand.strict), default=None)
        for demand, start in starts:
            begin = start if instant is None or not demand.strict else instant
            self.used[demand.key] = begin + demand.interval
        return instant

    def _until(self, demand: RateDemand) -> float:
        return self.used.get(demand.key, -math.inf)
