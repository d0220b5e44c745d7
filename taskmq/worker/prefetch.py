"""Number of deliveries that a worker requests in advance. Pure.

It is the number of slots and some more, so that a free slot does not wait for a round trip to the broker. How many
more depends on the duration of runs: deliveries in hand are hidden from other workers, and next to long runs they
would wait while other workers are idle.

    mean run        more than the slots
    up to 10 ms     up to 250 in all, at least twice the slots
    100 ms          as many as the slots
    10 s and more   none
    unknown         as many as the slots

Between these the number falls with the logarithm of the run time. A change creates a new consumer at the broker, so
changes are rare, and never small.
"""

import math
from typing import Final

from taskmq.model.topology import WorkQueue, is_jobs_queue, is_lane

_MOST: Final = 250
_SHORT: Final = 0.01
_MEDIUM: Final = 0.1
_LONG: Final = 10.0
_FACTOR: Final = 1.5


def prefetch_for(slots: int, *, seconds: float | None) -> int:
    """Return the prefetch for this many slots; `seconds` is the mean run, None before the first one."""
    bulk = max(_MOST, slots)
    if seconds is None:
        return min(2 * slots, bulk)
    if seconds <= _SHORT:
        return bulk
    if seconds <= _MEDIUM:
        share = math.log(seconds / _SHORT) / math.log(_MEDIUM / _SHORT)
        return round(bulk + (min(2 * slots, bulk) - bulk) * share)
    share = max(math.log(_LONG / seconds) / math.log(_LONG / _MEDIUM), 0.0)
    return min(slots + math.ceil(slots * share), bulk)


def worth_changing(now: int, wanted: int) -> bool:
    """Return whether the difference is worth a new consumer."""
    return max(now, wanted) >= _FACTOR * min(now, wanted)


def prefetch_of(queue: WorkQueue, physical: str, prefetch: int) -> int:
    """Return the prefetch of a physical queue, if its queue may have `prefetch` in hand of each of its classes."""
    if queue.ordered is not None and not is_jobs_queue(physical):
        # The next delivery of a shard would only wait here, and no other worker could run it.
        return 1
    # Two lanes carry the jobs of a tenant, so a single tenant still fills all slots.
    return math.ceil(prefetch / 2) if is_lane(physical) else prefetch
