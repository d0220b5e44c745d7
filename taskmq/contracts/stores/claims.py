"""Work that is done once per key: who is at it, and what came of it.

free -- claim --> held by a token -- complete --> done, with a value
^                     |
+----- release -------+      its lease ends, or it is known to be dead: the next claim has a larger token
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from taskmq.contracts.stores.leases import Lease

__all__ = ["ClaimStore", "Claimed", "Done", "Granted", "Held"]


class Granted(msgspec.Struct, frozen=True):
    """The key is the caller's.

    Attributes:
        token: larger than that of every earlier claim of the key.
    """

    token: int


class Held(Lease, frozen=True, kw_only=True):
    """A holder is at it: its lease on the key. `claim(over=token)` passes it on.

    Attributes:
        job_id: as the holder has said it.
    """

    job_id: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the key is done, and need not be done again.

    Attributes:
        job_id: whose run has done it.
        content_type, value: what that run has left.
    """

    job_id: str
    content_type: str
    value: bytes


Claimed = Granted | Held | Done
"""What a claim is answered with."""


class ClaimStore(Protocol):
    """Keys, each of which one holder at a time works at until it is done; by the store's clock.

    A holder that was silent for longer than its lease may have lost the key, whatever it believes: its renewals and
    its result are refused then. What it does elsewhere in the key's name carries the token, and who receives that
    refuses smaller ones than it has seen. Calls may be repeated when an answer was lost. A key is forgotten some time
    after it was left alone, see `ttl`. Every method raises `StateUnavailable` when the store cannot be reached; then
    it may have been done all the same.
    """

    async def claim(
        self, key: str, *, job_id: str, owner: str, lease: float, ttl: float, over: int | None = None
    ) -> Claimed:
        """Claim a key that is free for `lease` seconds, else say who has it, or what came of it.

        Args:
            job_id, owner: who claims, for those that come after.
            ttl: for how many seconds the key is remembered once it is released, or its lease has ended: a holder
                that wakes up within that time learns that it is too late.
            over: of a holder that is known to be gone: if the key is still held by this very token, it is passed on.
        """
        ...

    async def find(self, key: str) -> Held | Done | None:
        """Who has the key now, or what came of it; None where it is free."""
        ...

    async def renew(self, claims: Mapping[str, int], *, lease: float) -> frozenset[str]:
        """Hold keys for `lease` seconds from now on, each by its token; those that are lost.

        A lease that has ended goes on where its key was not claimed since. A key that the store has forgotten
        (its data was lost) is held again. Lost is what another holder claimed, completed or released.
        """
        ...

    async def complete(
        self, key: str, *, token: int, job_id: str, content_type: str, value: bytes, ttl: float
    ) -> bool:
        """Say that it is done, and remember that, with the value, for `ttl` seconds.

        True as well where this token has completed it before, where its lease has ended and no other holder claimed
        the key since, and where the store has forgotten the key. False, and nothing is changed: another one has
        claimed it since, or this token has released it.
        """
        ...

    async def release(self, key: str, *, token: int) -> bool:
        """Let go of the key, which is free at once.

        False, and nothing is changed, where another one has claimed it since; True as well where this token has
        released or completed it before, and where the store has forgotten the key.
        """
        ...
