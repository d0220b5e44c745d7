"""Parts of nodes that are taken. Pure.

An allocation of a job of the store names the token of the job's dispatch, and lasts exactly as long as that dispatch
does: nothing has to give it back, so nothing can forget to. One that was made by hand lasts until it is released, or
its time is over. Both end when their node is lost.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

__all__ = ["Allocation", "AllocationFilter", "NewAllocation", "Placement", "usage_of"]

_HOUR_MS = 3_600_000


class NewAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for by hand.

    Attributes:
        id: a UUID of the caller's; the same again is the same allocation.
        node: its name; None: whichever fits best.
        amounts: of what.
        labels: that the node must have.
        job: for whom, in the caller's words.
        tenant: whose that is.
        ttl: ms until it ends by itself; None: when it is released.
    """

    id: str
    node: str | None
    amounts: dict[str, float]
    labels: dict[str, str] = {}
    job: str = ""
    tenant: str = ""
    ttl: int | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits, and the node that it is to run on.

    Attributes:
        job: the store's id.
        epoch: of the node, as it was seen.
        gang: those of one gang are placed all, or none of them.
    """

    job: str
    tenant: str
    task: str
    node: str
    epoch: int
    amounts: dict[str, float]
    gang: str = ""


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation. Instants are ms since the epoch.

    Attributes:
        job: the store's id of a job, or what its user has said.
        task: of a job of the store; "" of one by hand.
        since: when it was made.
        until: when it ends by itself.
        ended: when it ended, as far as it was seen; None: it has not.
    """

    id: str
    node: str
    job: str
    tenant: str = ""
    task: str = ""
    amounts: dict[str, float]
    since: int
    until: int | None = None
    ended: int | None = None


class AllocationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which allocations are meant: all that fit everything that is said.

    Attributes:
        since, until: those that there were within this time, ms since the epoch.
        is_open: those that have not ended.
    """

    node: str | None = None
    job: str | None = None
    tenant: str | None = None
    since: int | None = None
    until: int | None = None
    is_open: bool = False


def usage_of(allocations: Iterable[Allocation], *, since: int, until: int) -> dict[str, float]:
    """Amounts times hours that were allocated within this time (ms since the epoch)."""
    found: defaultdict[str, float] = defaultdict(float)
    for each in allocations:
        begin = max(each.since, since)
        end = until if each.ended is None else min(each.ended, until)
        for name, amount in each.amounts.items():
            found[name] += amount * max(end - begin, 0) / _HOUR_MS
    return dict(found)
