"""How many deliveries a worker wants in hand. Pure.

As many as it has slots, and a few more, so that a slot that becomes free does not wait for the way to the broker and
back. How many more depends on how long a run takes: what is in hand is hidden from other workers, and beside long
runs it would wait while other workers are idle.

    mean run        more than the slots
    up to 10 ms     up to 250 in all, at least twice the slots
    100 ms          as many as the slots
    10 s and more   none
    unknown         as many as the slots

Between these the number falls with the logarithm of the run time. Changing it makes a new consumer at the broker, so
it is changed seldom, and not for little.
"""

import math
from typing import Final

from taskmq.model.topology import WorkQueue, is_lane

__all__ = ["prefetch_for", "prefetch_of", "worth_changing"]

_MOST: Final = 250
_SHORT: Final = 0.01
_MEDIUM: Final = 0.1
_LONG: Final = 10.0
_FACTOR: Final = 1.5


def prefetch_for(slots: int, *, seconds: float | None) -> int:
    """How many for so many slots; `seconds` is the mean run, None where nothing has run yet."""
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
    """Whether the difference is worth a new consumer."""
    return max(now, wanted) >= _FACTOR * min(now, wanted)


def prefetch_of(queue: WorkQueue, physical: str, prefetch: int) -> int:
    """How many of a physical queue, where its queue may have `prefetch` in hand of each of its classes."""
    if queue.ordered is not None:
        # The next of a shard would only wait here, where no other worker can run it.
        return 1
    # Two lanes carry the jobs of a tenant, so one that is alone still fills all slots.
    return math.ceil(prefetch / 2) if is_lane(physical) else prefetch
