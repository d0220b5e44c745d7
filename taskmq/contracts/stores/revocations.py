"""Cancelled jobs."""

from typing import Protocol

import msgspec


class Revocation(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was cancelled.

    Attributes:
        cursor: increases with each revocation of a store.
        until: its expiry, ms since the epoch.
    """

    job_id: str
    reason: str
    cursor: int
    until: int


class RevocationStore(Protocol):
    """Cancelled jobs that may not have ended yet, for all workers.

    If the state cannot be reached a cancelled job may run (fails open): a worker that stopped because of its
    ignorance would do more harm.
    """

    async def revoke(self, job_id: str, *, reason: str, ttl: float) -> None:
        """Remember for `ttl` seconds that the job is cancelled; a repeated call changes only the expiry.

        Raises:
            StateUnavailable: the store could not be reached; it may have been remembered or not.
        """
        ...

    async def since(self, cursor: int, *, limit: int) -> list[Revocation]:
        """Return up to `limit` unexpired revocations after `cursor`, in order; after 0 from the first one.

        Raises:
            StateUnavailable: the store could not be reached.
        """
        ...
