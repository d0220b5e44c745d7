"""Allocations: parts of nodes that are in use. Pure.

The allocation of a stored job names the token of its dispatch, and lasts exactly as long as that dispatch. So it
needs no release, and cannot leak. A manual allocation lasts until it is released or expires. Both end when their node
is lost.
"""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

_HOUR_MS = 3_600_000


class NewAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a manual allocation.

    Attributes:
        id: a UUID that the caller chooses; a repeated request is the same allocation.
        node: its name; None: the best fit.
        amounts: by resource.
        labels: labels that the node must have.
        job: the purpose, in the caller's words.
        tenant: the owner of the allocation.
        ttl: ms until it expires; None: it lasts until it is released.
    """

    id: str
    node: str | None
    amounts: dict[str, float]
    labels: dict[str, str] = {}
    job: str = ""
    tenant: str = ""
    ttl: int | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job, and the node that it is to run on.

    Attributes:
        job: the store's id.
        epoch: of the node, as the scheduler saw it.
        gang: jobs of one gang are placed all together, or not at all.
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
        job: the store's id of a job, or the purpose that its user gave.
        task: of a stored job; "" for a manual allocation.
        since: its start.
        until: its expiry.
        ended: its end, as far as observed; None: it continues.
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
    """Conditions that allocations must match; an unset one matches all.

    Attributes:
        since, until: a time with which the allocation overlaps, ms since the epoch.
        is_open: only allocations that have not ended.
    """

    node: str | None = None
    job: str | None = None
    tenant: str | None = None
    since: int | None = None
    until: int | None = None
    is_open: bool = False


def usage_of(allocations: Iterable[Allocation], *, since: int, until: int) -> dict[str, float]:
    """Return amounts times hours that were allocated within this time (ms since the epoch)."""
    found: defaultdict[str, float] = defaultdict(float)
    for each in allocations:
        begin = max(each.since, since)
        end = until if each.ended is None else min(each.ended, until)
        for name, amount in each.amounts.items():
            found[name] += amount * max(end - begin, 0) / _HOUR_MS
    return dict(found)
