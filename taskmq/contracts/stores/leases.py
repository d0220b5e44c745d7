"""Keys that one owner at a time holds, and who is there.

Everything in taskmq that is for one at a time uses `LeaseStore`: the partitions and duties of schedulers, locks, keys
of running jobs, long runs. `Coordinator` is that with groups of members, and what an adapter for another system
implements; `taskmq.testing.coordinator_suite` says when it is done.
"""

from typing import Protocol

import msgspec

__all__ = ["Coordinator", "Lease", "LeaseStore"]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a key.

    Attributes:
        token: larger than that of every earlier lease of the key, also of those that have ended.
        left: seconds until it ends by itself.
        note: what the holder has written on it.
    """

    owner: str
    token: int
    left: float
    note: str = ""


class LeaseStore(Protocol):
    """Keys that one owner at a time holds, for as long as the owner keeps saying so; by the store's clock.

    A holder that was silent for too long has lost the key, whatever it believes. So what it does in the holder's
    name carries the token, and who receives that refuses smaller ones than it has seen. A holder may trust its lease
    for its time from the moment *before* it asked. Every method raises `StateUnavailable` when the store cannot be
    reached; then it may have been done all the same.
    """

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        """Take a free key for `seconds`: the token, or the lease that is in the way, be it the same owner's."""
        ...

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        """Hold the key for `seconds` from now on, with another note unless it is None.

        False, and nothing is changed, where the lease of that token has ended.
        """
        ...

    async def release(self, key: str, *, token: int) -> None:
        """End the lease of that token; nothing where it has ended."""
        ...

    async def find(self, key: str) -> Lease | None:
        """The lease that there is now; None where the key is free."""
        ...


class Coordinator(LeaseStore, Protocol):
    """Leases, and groups of those who hold some: whom a process shares its work with.

    A member of a group holds the lease of `member_key(group, member)`, and is one for as long as it does. Its token
    is larger than that of an earlier member of that name.
    """

    async def members(self, group: str) -> dict[str, Lease]:
        """The leases that members of the group hold now, by their names and in the order of these."""
        ...
