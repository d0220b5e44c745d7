"""Limits that all workers share: rates, and numbers of concurrent runs."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from taskmq.model.limits import RateDemand


class PlaceDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A permit of a limited number.

    Attributes:
        key: the limit.
        places: number of permits; at least 1.
    """

    key: str
    places: int


Demand = RateDemand | PlaceDemand


class LimitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run may start.

    Attributes:
        granted: whether it may, `wait` seconds from now, the instant that a strict rate has counted; otherwise
            nothing was acquired.
        wait: seconds. If it was refused: when to ask again; the job is in the line of each limit that blocks it, and
            an earlier call gets the same answer.
        key: the limit that blocks it longest; "" if none does.
        holds: some of the holders of that limit.
    """

    granted: bool
    wait: float
    key: str = ""
    holds: tuple[str, ...] = ()


class LimitUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The present use of a limit.

    Attributes:
        held: number of held permits.
        waiting: number of jobs in its line.
    """

    held: int
    waiting: int


class LimitStore(Protocol):
    """Limits by key; by the store's clock, and kept no longer than they matter.

    A rate counts starts. In any period there are at most as many as the rate allows in it and a quarter of a second,
    plus the burst. While jobs wait, missed starts of the last second are made up for, a quarter faster than the rate.
    Starts are granted to present callers; an absent one learns when its turn comes. So lines move in the order of
    arrival, no job waits forever, and nothing is kept for jobs that never return. Permits are leases of their
    callers. A limit's numbers may differ between demands: the demand at hand counts.

    Every method raises `StateUnavailable` if the store cannot be reached; the operation may have happened all the
    same. A repeated call acquires no second permit; a rate may count one start more, which does not happen.
    """

    async def acquire(
        self, job_id: str, demands: Sequence[Demand], *, hold: str, seconds: float, patience: float
    ) -> LimitEntry:
        """Acquire everything that a run demands, or nothing.

        Args:
            demands: demands of different limits.
            hold: unique name of the run's permits.
            seconds: seconds until they expire.
            patience: maximum seconds that the caller waits for a granted start.
        """
        ...

    async def renew(self, holds: Sequence[tuple[str, PlaceDemand]], *, seconds: float) -> list[bool]:
        """Hold permits for `seconds` from now on; return whether each is held.

        An expired one is acquired again if there is room.
        """
        ...

    async def release(self, hold: str, keys: Sequence[str], *, held: float | None) -> None:
        """Release the permits of these limits; does nothing if they have expired.

        Args:
            held: seconds for which they were held, for predictions of waiting times; None: unknown.
        """
        ...

    async def withdraw(self, job_id: str, keys: Sequence[str]) -> None:
        """Remove the job from the lines of these limits."""
        ...

    async def usage(self, key: str) -> LimitUsage:
        """The present use of a limit."""
        ...
