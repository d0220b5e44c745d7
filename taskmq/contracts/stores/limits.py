"""What runs need of limits that all workers share: so many in a time, or so many at a time."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["Demand", "LimitEntry", "LimitStore", "LimitUsage", "PlaceDemand", "RateDemand"]


class RateDemand(msgspec.Struct, frozen=True, kw_only=True):
    """One start of so many in a time.

    Attributes:
        key: which limit.
        interval: seconds between two starts.
        burst: how many may follow each other at once when there was none for long; at least 1.
        strict: no start is ahead of its turn, and none that was missed is made up for: granted starts are never
            closer than `interval` to each other.
    """

    key: str
    interval: float
    burst: int = 1
    strict: bool = False


class PlaceDemand(msgspec.Struct, frozen=True, kw_only=True):
    """One place of so many that are held at a time.

    Attributes:
        key: which limit.
        places: how many there are; at least 1.
    """

    key: str
    places: int


Demand = RateDemand | PlaceDemand


class LimitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run may begin.

    Attributes:
        granted: it may, `wait` seconds from now, the moment for which a strict rate has counted it; otherwise nothing
            was taken.
        wait: seconds. Of what was refused: when to ask again; the job has a place in the line of each limit that
            is in its way, and what asks again earlier gets the same answer.
        key: the limit that is in the way longest; "" where none is.
        holds: of that, who has its places, some of them.
    """

    granted: bool
    wait: float
    key: str = ""
    holds: tuple[str, ...] = ()


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The present use of a limit.

    Attributes:
        held: how many places are held.
        waiting: how many jobs have a place in its line.
    """

    held: int
    waiting: int


class LimitStore(Protocol):
    """Limits by key; by the store's clock, and kept no longer than they matter.

    A rate counts starts. In any time there are at most as many as the rate allows in it and a quarter of a second,
    and the burst; while jobs wait, what was missed of the last second is made up for, a quarter faster than the
    rate. Starts are granted to those who are there; one that is not learns when its turn comes, so that lines move in
    the order in which jobs came, no job is passed for ever, and nothing is kept for jobs that never come back. Places
    are held under a lease by those who were granted them. A limit's numbers may be others in each demand: the demand
    at hand counts.

    Every method raises `StateUnavailable` when the store cannot be reached; then it may have been done all the same.
    Done twice it takes no second place; of a rate it may take one start more, which is not made.
    """

    async def acquire(
        self, job_id: str, demands: Sequence[Demand], *, hold: str, seconds: float, patience: float
    ) -> LimitEntry:
        """Take everything that a run demands, or nothing.

        Args:
            demands: of limits that differ.
            hold: by what the run's places are known; unique.
            seconds: until they end by themselves.
            patience: how long the caller would wait with a start in hand.
        """
        ...

    async def renew(self, holds: Sequence[tuple[str, PlaceDemand]], *, seconds: float) -> list[bool]:
        """Keep places for `seconds` from now on; whether each is held.

        One that has ended is taken once more where there is room.
        """
        ...

    async def release(self, hold: str, keys: Sequence[str], *, held: float | None) -> None:
        """Let go of the places of these limits; nothing where they have ended.

        Args:
            held: seconds for which they were held, by which the waiting times of others are judged; None: not known.
        """
        ...

    async def withdraw(self, job_id: str, keys: Sequence[str]) -> None:
        """Give up the job's place in the lines of these limits."""
        ...

    async def usage(self, key: str) -> LimitUsage:
        """The present use of a limit."""
        ...
