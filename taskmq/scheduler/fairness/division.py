"""Division of partitions among schedulers. Pure.

Each scheduler reads the holders of all partitions and decides alone; leases ensure that each partition has one
holder. A scheduler with less than its share that finds no free partition announces that it *wants* more. Schedulers
with more then release some: all above the larger share, or one partition of the largest holder.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec


class Division(msgspec.Struct, frozen=True):
    """Decision of a scheduler.

    Attributes:
        take: free partitions to acquire.
        give: partitions to release.
        wants: whether to announce that it has less than its share.
    """

    take: list[int]
    give: list[int]
    wants: bool


def divide(holders: Mapping[int, str | None], *, me: str, wanting: str | None) -> Division:
    """Decide which partitions `me` acquires and releases.

    Args:
        holders: holder of each partition; None: free.
        wanting: the scheduler that announced that it has less than its share, if any.
    """
    counts = Counter(holder for holder in holders.values() if holder is not None)
    mine = sorted(partition for partition, holder in holders.items() if holder == me)
    free = sorted(partition for partition, holder in holders.items() if holder is None)
    live = {*counts, me, wanting or me}
    smaller, rest = divmod(len(holders), len(live))
    larger = smaller + (rest > 0)
    other_wants = wanting is not None and wanting != me
    # Free partitions are left to the wanting scheduler, except for those of the smaller share here.
    limit = max(smaller, 1) if other_wants else larger
    take = free[: max(limit - len(mine), 0)]
    give: list[int] = []
    if other_wants:
        surplus = max(len(mine) - larger, 0)
        most = max(counts.values(), default=0)
        if not surplus and not free and smaller < len(mine) == most:
            # Only one of the largest holders releases; all schedulers choose the same one.
            surplus = int(me == min(holder for holder, count in counts.items() if count == most))
        give = mine[len(mine) - surplus :]
    return Division(take, give, len(mine) + len(take) < smaller)
