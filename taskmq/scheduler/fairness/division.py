"""Division of partitions among schedulers. Pure.

Each scheduler looks at who holds which partition and decides alone; the lease of a partition sees to it that it has
one holder. A scheduler that has less than its share, and finds none free, announces that it *wants* more. Those that
have more give some back: all above the larger share, or one partition of the largest holder.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

__all__ = ["Division", "divide"]


class Division(msgspec.Struct, frozen=True):
    """What a scheduler does next.

    Attributes:
        take: free slots to acquire.
        give: the partitions that it releases.
        wants: it has to say that it has less than its share.
    """

    take: list[int]
    give: list[int]
    wants: bool


def divide(holders: Mapping[int, str | None], *, me: str, wanting: str | None) -> Division:
    """Decide which partitions `me` takes and gives back.

    Args:
        holders: who holds each partition; None: no scheduler.
        wanting: the scheduler that says that it has less than its share, if any.
    """
    counts = Counter(holder for holder in holders.values() if holder is not None)
    mine = sorted(partition for partition, holder in holders.items() if holder == me)
    free = sorted(partition for partition, holder in holders.items() if holder is None)
    live = {*counts, me, wanting or me}
    smaller, rest = divmod(len(holders), len(live))
    larger = smaller + (rest > 0)
    other_wants = wanting is not None and wanting != me
    # What another scheduler waits for is left to it, but for what makes up the smaller share here.
    limit = max(smaller, 1) if other_wants else larger
    take = free[: max(limit - len(mine), 0)]
    give: list[int] = []
    if other_wants:
        surplus = max(len(mine) - larger, 0)
        most = max(counts.values(), default=0)
        if not surplus and not free and smaller < len(mine) == most:
            # Of those that hold the most, one gives: everybody sees the same one.
            surplus = int(me == min(holder for holder, count in counts.items() if count == most))
        give = mine[len(mine) - surplus :]
    return Division(take, give, len(mine) + len(take) < smaller)
