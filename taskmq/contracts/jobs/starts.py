"""Starts of stored jobs under rates, which one row per rate and key counts for all queues and schedulers.

    dispatched -> take_starts -- granted -> published; under a strict rate with the instant of its start
                              -- waits   -> behind the gate of the rate, until it has room

A granted start counts even if the job never starts: the rate is then lower, never higher.
"""

from collections.abc import Mapping

import msgspec

from taskmq.model.limits import RateDemand


class RatedJob(msgspec.Struct, frozen=True):
    """A dispatched job under rates.

    Attributes:
        token: of its dispatch.
        is_sure: whether it starts even if a rate has no room, because a worker may have its message already.
    """

    id: str
    token: int
    rates: tuple[RateDemand, ...]
    is_sure: bool = False


class TakenStarts(msgspec.Struct, frozen=True):
    """The answer to a request for starts.

    A job in no attribute is not dispatched with its token any more, or its cancellation was requested.

    Attributes:
        instants: jobs whose starts were counted; the instant of a start under a strict rate, ms since the epoch.
        waiting: jobs that were moved behind the gate of a rate, by its key.
        waits: seconds until each rate has room; 0 or less: now.
    """

    instants: Mapping[str, float | None]
    waiting: Mapping[str, str]
    waits: Mapping[str, float]
