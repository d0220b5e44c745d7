"""Leases that last for longer than any caller asks for: the store's clock was ahead as they were granted.

A clock that leaps an hour ahead and back leaves leases of five seconds that last for an hour. Where all ask
for the same time under a key, such a lease is known by what is left of it, and is ended by its finder. A process that
still holds it learns of that with the next renewal, and the epochs refuse what it writes until then.
"""

from typing import Final

from taskmq.contracts.stores import Lease, LeaseStore

__all__ = ["TOLERANCE", "acquire_in_term", "is_beyond_term"]

TOLERANCE: Final = 60.0
"""Seconds that a call may take, and for which a database's host is frozen while it is moved to another machine."""


def is_beyond_term(lease: Lease, seconds: float) -> bool:
    """Whether a lease that was granted for so many seconds lasts for longer than that."""
    return lease.left > seconds + TOLERANCE


async def acquire_in_term(leases: LeaseStore, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
    """What `Coordinator.acquire` does; a lease that is beyond its term is ended before.

    Only for keys that everybody acquires for the same time.

    Raises:
        StateUnavailable: it is not known whether it was acquired.
    """
    found = await leases.acquire(key, owner=owner, seconds=seconds, note=note)
    if isinstance(found, Lease) and is_beyond_term(found, seconds):
        await leases.release(key, token=found.token)
        found = await leases.acquire(key, owner=owner, seconds=seconds, note=note)
    return found
