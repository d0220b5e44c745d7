"""Claims on work that is done once per key: the present holder, and the result.

free -- claim --> held by a token -- complete --> done, with a value
^                     |
+----- release -------+      its lease ends, or it is known to be dead: the next claim has a larger token
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from taskmq.contracts.stores.leases import Lease


class Granted(msgspec.Struct, frozen=True):
    """The caller holds the key.

    Attributes:
        token: larger than that of every earlier claim of the key.
    """

    token: int


class Held(Lease, frozen=True, kw_only=True):
    """Another holder works on the key: its lease. `claim(over=token)` passes the key on.

    Attributes:
        job_id: as given by the holder.
    """

    job_id: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the key is done, and need not be repeated.

    Attributes:
        job_id: the job that did it.
        content_type, value: the result of that run.
    """

    job_id: str
    content_type: str
    value: bytes


Claimed = Granted | Held | Done
"""Answer to a claim."""


class ClaimStore(Protocol):
    """Keys that one holder at a time works on until the work is done; by the store's clock.

    A holder that was silent for longer than its lease may have lost the key, whatever it believes: its renewals and
    its result are refused then. Its external effects carry the token, and the receiver refuses smaller tokens than it
    has seen. Calls may be repeated if an answer was lost. A key is forgotten some time after its last use, see `ttl`.
    Every method raises `StateUnavailable` if the store cannot be reached; the operation may have happened all the
    same.
    """

    async def claim(
        self, key: str, *, job_id: str, owner: str, lease: float, ttl: float, over: int | None = None
    ) -> Claimed:
        """Claim a free key for `lease` seconds; otherwise return its holder, or the result.

        Args:
            job_id, owner: the claimant, for later claimants.
            ttl: seconds for which the key is remembered after its release, or the end of its lease: a holder that
                wakes up within that time learns that it is too late.
            over: token of a holder that is known to be gone: if it still holds the key, the key is passed on.
        """
        ...

    async def find(self, key: str) -> Held | Done | None:
        """Return the present holder of the key, or the result; None if it is free."""
        ...

    async def renew(self, claims: Mapping[str, int], *, lease: float) -> frozenset[str]:
        """Hold keys for `lease` seconds from now on, each by its token; return those that are lost.

        An expired lease continues if the key was not claimed since. A key that the store has forgotten (its data was
        lost) is held again. A key is lost if another holder claimed, completed or released it.
        """
        ...

    async def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: float
    ) -> bool:
        """Record that the work is done, with its value, for `ttl` seconds.

        Also True if this token completed it before, if its lease expired and no other holder claimed the key since,
        or if the store has forgotten the key. Returns False, and changes nothing, if another holder claimed it since,
        or this token released it.
        """
        ...

    async def release(self, key: str, *, token: int) -> bool:
        """Release the key, which is free immediately.

        Returns False, and changes nothing, if another holder claimed it since. Also True if this token released or
        completed it before, or if the store has forgotten the key.
        """
        ...
