"""The lease under which one long run continues without its message."""

import asyncio

from taskmq.contracts.stores import Lease, LeaseStore
from taskmq.worker.long_runs.leased_delivery import LeasedDelivery


class RunLease:
    """A lease of this worker, and the run under it.

    Args:
        owner: the worker, as shown.
        token: of the lease; 0: it is not taken yet.

    Attributes:
        handed: the delivery that the lease stands in for; None before the transfer.
        is_over: whether the end of the run is being recorded.
    """

    __slots__ = ("_leases", "_owner", "_token", "_turn", "handed", "is_over", "job_id", "key")

    def __init__(self, leases: LeaseStore, key: str, job_id: str, *, owner: str, token: int = 0) -> None:
        self.key = key
        self.job_id = job_id
        self.handed: LeasedDelivery | None = None
        self.is_over = False
        self._leases = leases
        self._owner = owner
        self._token = token
        self._turn = asyncio.Lock()

    async def take(self, seconds: float) -> bool:
        """Acquire the lease, or renew it. Return False if it had expired; the next call acquires a new one.

        Raises:
            StateUnavailable: the lease's state is unknown.
        """
        if self._token:
            is_held = await self._leases.renew(self.key, token=self._token, seconds=seconds)
            self._token = self._token if is_held else 0
            return is_held
        taken = await self._leases.acquire(self.key, owner=self._owner, seconds=seconds)
        # No other process knows the key: if it is held, the answer to an earlier call was lost.
        self._token = taken.token if isinstance(taken, Lease) else taken
        return True

    async def renew(self, seconds: float, *, note: str | None = None) -> bool:
        """Renew the lease, or acquire it again if it expired and is free; return whether it is held.

        Args:
            note: the final record of the run, after which the lease is not renewed any more.

        Raises:
            StateUnavailable: the lease's state is unknown.
        """
        # Sequentially: a renewal must not follow the final record.
        async with self._turn:
            if self.is_over and note is None:
                return True
            self.is_over = note is not None
            if await self._leases.renew(self.key, token=self._token, seconds=seconds, note=note):
                return True
            taken = await self._leases.acquire(self.key, owner=self._owner, seconds=seconds, note=note or "")
            if isinstance(taken, Lease):
                return False
            self._token = taken
            return True

    async def release(self) -> None:
        """Let the lease expire now.

        Raises:
            StateUnavailable: it expires by itself.
        """
        await self._leases.release(self.key, token=self._token)
