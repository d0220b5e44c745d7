"""Leases that outlast their term, because the store's clock was ahead when they were granted.

A clock that jumps an hour ahead and back leaves leases of five seconds that last for an hour. If all callers use the
same duration for a key, the rest of such a lease reveals it, and its finder ends it. A process that still holds it
learns that with the next renewal, and the epochs refuse its writes until then.
"""

from typing import Final

from taskmq.contracts.stores import Lease, LeaseStore

TOLERANCE: Final = 60.0
"""Seconds that a call may take, including the time for which a database's host is frozen while it migrates."""


def is_beyond_term(lease: Lease, seconds: float) -> bool:
    """Return whether a lease that was granted for this many seconds lasts longer."""
    return lease.left > seconds + TOLERANCE


async def acquire_in_term(leases: LeaseStore, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
    """Acquire a lease like `Coordinator.acquire`, after ending an existing lease that is beyond its term.

    Only for keys that all callers acquire for the same duration.

    Raises:
        StateUnavailable: it is unknown whether it was acquired.
    """
    found = await leases.acquire(key, owner=owner, seconds=seconds, note=note)
    if isinstance(found, Lease) and is_beyond_term(found, seconds):
        await leases.release(key, token=found.token)
        found = await leases.acquire(key, owner=owner, seconds=seconds, note=note)
    return found
