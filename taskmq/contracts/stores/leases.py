"""Leases: keys that one owner at a time holds, and groups of members.

Everything in taskmq that one process at a time may do uses `LeaseStore`: the partitions and duties of schedulers,
locks, keys of running jobs, long runs. `Coordinator` adds groups of members; adapters for other systems implement it,
and `taskmq.testing.coordinator_suite` checks them.
"""

from typing import Protocol

import msgspec


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a key.

    Attributes:
        token: larger than that of every earlier lease of the key, including ended ones.
        left: seconds until it expires.
        note: a text of the holder.
    """

    owner: str
    token: int
    left: float
    note: str = ""


class LeaseStore(Protocol):
    """Keys that one owner at a time holds while it renews them; by the store's clock.

    A holder that was silent for too long has lost the key, whatever it believes. So its effects carry the token, and
    the receiver refuses smaller tokens than it has seen. A holder may rely on its lease for its duration from the
    moment *before* the call. Every method raises `StateUnavailable` if the store cannot be reached; the operation may
    have happened all the same.
    """

    async def acquire(self, key: str, *, owner: str, seconds: float, note: str = "") -> int | Lease:
        """Acquire a free key for `seconds`; return the token, or the existing lease, even of the same owner."""
        ...

    async def renew(self, key: str, *, token: int, seconds: float, note: str | None = None) -> bool:
        """Hold the key for `seconds` from now on, with another note unless it is None.

        Returns False, and changes nothing, if the lease of that token has ended.
        """
        ...

    async def release(self, key: str, *, token: int) -> None:
        """End the lease of that token; does nothing if it has ended."""
        ...

    async def find(self, key: str) -> Lease | None:
        """Return the present lease; None if the key is free."""
        ...


class Coordinator(LeaseStore, Protocol):
    """Leases, and groups of lease holders: the processes that share some work.

    A member of a group holds the lease of `member_key(group, member)`, for as long as it is a member. Its token is
    larger than that of an earlier member of that name.
    """

    async def members(self, group: str) -> dict[str, Lease]:
        """Return the present leases of the group's members by name, in order of the names."""
        ...
