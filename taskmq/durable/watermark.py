"""Watermark: detects that a store lost confirmed writes.

A standby that takes over without the last transactions, or a restored backup, lacks confirmed writes; and a store
whose clock was set back keeps leases for longer than their holders rely on them. A process that remembers its own
last write detects both.

    keep (once a second):  read the mark -> is its count the last confirmed one? is the rest of its time right?
                               write the next count
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from taskmq.contracts.stores import Lease, LeaseStore
from taskmq.durable.lease_terms import TOLERANCE
from taskmq.errors import StoreWentBack
from taskmq.model.keys import watermark_key

# The mark survives if the store's clock jumps ahead by up to this.
_SECONDS: Final = 86_400.0
_REMEDY: Final = "docs/disaster-recovery.md says what to do before the schedulers are started again"


class Watermark:
    """The last write of one process into a store, under a lease of its own.

    Args:
        address: names the store in errors.
        me: unique name of the process.
        wall: a clock that continues while the machine is suspended.
    """

    def __init__(self, leases: LeaseStore, *, address: str, me: str, wall: Callable[[], float] = time.time) -> None:
        self._leases = leases
        self._address = address
        self._key = watermark_key(me)
        self._me = me
        self._wall = wall
        self._token: int | None = None
        self._confirmed = 0
        # By the loop's clock, which cannot be set and which may stop, and by the wall clock.
        self._until = self._wall_until = 0.0

    async def keep(self) -> None:
        """Compare the mark with the last confirmed one, and write the next one.

        Raises:
            StoreWentBack: the store lost confirmed writes, or its clock was set back.
            StateUnavailable: the store did not answer; call it again.
        """
        now, wall = self._now()
        found = None if self._token is None else await self._leases.find(self._key)
        # Checked after the answer: the machine may have been suspended in between.
        if self._token is None or self._is_over():
            await self._begin()
            return
        self._compare(found, now)
        # A write in progress when the connection was lost may have happened.
        count = self._confirmed + 1
        if await self._leases.renew(self._key, token=self._token, seconds=_SECONDS, note=str(count)):
            self._confirm(count, now, wall)

    async def end(self) -> None:
        """Delete the watermark in the state.

        Raises:
            StateUnavailable: it expires by itself.
        """
        if self._token is not None:
            token, self._token = self._token, None
            await self._leases.release(self._key, token=token)

    async def _begin(self) -> None:
        now, wall = self._now()
        found = await self._leases.acquire(self._key, owner=self._me, seconds=_SECONDS, note="0")
        # An existing lease was granted to this process by an answer that was lost.
        self._token = found.token if isinstance(found, Lease) else found
        self._confirm(0, now, wall)

    def _confirm(self, count: int, now: float, wall: float) -> None:
        self._confirmed, self._until, self._wall_until = count, now + _SECONDS, wall + _SECONDS

    def _now(self) -> tuple[float, float]:
        return asyncio.get_running_loop().time(), self._wall()

    def _is_over(self) -> bool:
        now, wall = self._now()
        return self._until <= now or self._wall_until <= wall

    def _compare(self, found: Lease | None, now: float) -> None:
        if found is None or found.token != self._token or int(found.note) < self._confirmed:
            kept = "no mark" if found is None else f"mark {found.note}"
            raise StoreWentBack(
                f"{self._address} lost transactions: it has {kept} of this scheduler, but had confirmed mark "
                f"{self._confirmed}. A standby took over without the last transactions, or a backup was "
                f"restored. {_REMEDY}"
            )
        ahead = found.left - (self._until - now)
        if ahead > TOLERANCE:
            raise StoreWentBack(
                f"{self._address}: its clock went back by about {ahead:.0f} s, so its leases last longer "
                f"by as much. Synchronize the clocks of the database's hosts (NTP). {_REMEDY}"
            )
