"""Jobs that were cancelled."""

from typing import Protocol

import msgspec

__all__ = ["Revocation", "RevocationStore"]


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was cancelled.

    Attributes:
        place: grows with each one of a store; where to go on reading.
        until: when it is forgotten, ms since the epoch.
    """

    job_id: str
    reason: str
    place: int
    until: int


class RevocationStore(Protocol):
    """Jobs that were cancelled and may not have ended yet, for every worker to see.

    Where the state cannot be reached a cancelled job may run (fails open): a worker that stopped its work because it
    does not know would do more harm.
    """

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        """Remember for `ttl` seconds that the job is cancelled; a second time changes nothing but how long.

        Raises:
            StateUnavailable: the store could not be reached; it may have been remembered or not.
        """
        ...

    async def since(self, place: int, *, limit: int) -> list[Revocation]:
        """Up to `limit` that hold still and came after `place`, in their order; from the first one on after 0.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
