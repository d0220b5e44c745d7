"""The partitions that this scheduler holds, under leases of five seconds.

    poll once a second -> divide (pure): acquire free ones, release some if others have too few
    LeaseKeeper        -> renew all held leases, three times per lease
                          lost, or not renewed in time: its work stops at once, and the store's epochs fence the rest

If the store lost confirmed writes, the scheduler stops, and people have to examine it first (`Watermark`).

While one scheduler lives, no partition is without a holder for longer than a lease. A released partition is free at
once, and the other schedulers are notified.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

from taskmq.contracts.jobs import DispatchStore, partition_key
from taskmq.contracts.stores import Lease
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.durable.lease_terms import acquire_in_term, is_beyond_term
from taskmq.durable.service import pause
from taskmq.durable.watermark import Watermark
from taskmq.errors import StateUnavailable, StoreUnavailable, StoreWentBack
from taskmq.scheduler.fairness import divide

_log = logging.getLogger("taskmq.scheduler")

LEASE: Final = 5.0
_PERIOD: Final = 1.0
_SHORTEST_PERIOD: Final = 0.05
# Longest wait for the store at the end.
_LAST_CALLS: Final = 2.0
_WANTED: Final = "partitions:wanted"


class HeldLease:
    """The lease of a partition that this scheduler holds.

    Attributes:
        epoch: its token.
        until: when it expires, by the loop's clock.
    """

    def __init__(self, partition: int, epoch: int, until: float) -> None:
        self.partition = partition
        self.epoch = epoch
        self.until = until

    def __repr__(self) -> str:
        return f"<HeldLease partition={self.partition} epoch={self.epoch}>"


class PartitionLeases:
    """A service that holds this scheduler's share of the partitions.

    Args:
        me: unique name of this scheduler.
        on_acquire: called with each acquired partition.
        on_give: called with each partition to give to another scheduler; has to stop its work and call `release`.
        on_lose: called with each partition that another scheduler may already hold.
        on_free: called when partitions were released, to announce them.
        on_refuse: called when the store lost confirmed writes; nothing is acquired any more.
    """

    def __init__(
        self,
        store: DispatchStore,
        *,
        address: str,
        me: str,
        on_acquire: Callable[[HeldLease], None],
        on_give: Callable[[HeldLease], None],
        on_lose: Callable[[HeldLease], None],
        on_free: Callable[[], None],
        on_refuse: Callable[[StoreWentBack], None],
    ) -> None:
        self._store = store
        self._me = me
        self._on_acquire = on_acquire
        self._on_give = on_give
        self._on_lose = on_lose
        self._on_free = on_free
        self._on_refuse = on_refuse
        self._mark = Watermark(store.leases, address=address, me=me)
        self._held: dict[int, HeldLease] = {}
        # Partitions being released: still held until their work has stopped.
        self._releasing: set[int] = set()
        self._wanting: int | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._keeper = LeaseKeeper("partitions", seconds=LEASE, renew=self._renew)
        self._waking = asyncio.Event()
        self._is_stopping = False
        self._has_trouble = False
        self._answered: float | None = None

    @property
    def held(self) -> list[int]:
        """Partitions that are held."""
        return sorted(self._held)

    @property
    def silence(self) -> float | None:
        """Seconds since the store last answered; None: it never has."""
        return None if self._answered is None else asyncio.get_running_loop().time() - self._answered

    def poll(self) -> None:
        """Poll at once, because something has changed."""
        self._waking.set()

    def stop(self) -> None:
        """Stop acquiring. Held partitions are kept until they are released."""
        self._is_stopping = True
        self._waking.set()

    async def run(self) -> None:
        """Hold this scheduler's share until `stop`."""
        while not self._is_stopping:
            self._waking.clear()
            wait = _PERIOD
            try:
                wait = await self._poll()
                self._report_recovery()
            except (StateUnavailable, StoreUnavailable) as error:
                self._report_outage(error)
            except StoreWentBack as error:
                self._is_stopping = True
                self._on_refuse(error)
            self._drop_expired()
            await pause(self._waking, wait)

    async def release(self, lease: HeldLease) -> None:
        """Release a partition, so that another scheduler can acquire it at once. Does nothing if it was lost.

        If the store does not answer, this returns once the lease has expired.
        """
        # It may have been acquired anew since, with another lease.
        if self._held.get(lease.partition) is not lease:
            return
        del self._held[lease.partition]
        self._releasing.discard(lease.partition)
        try:
            async with asyncio.timeout_at(lease.until):
                await self._store.leases.release(partition_key(lease.partition), token=lease.epoch)
        except (StateUnavailable, StoreUnavailable, TimeoutError) as error:
            why = str(error) or "the store did not answer"
            _log.warning("partition %d: releasing its lease failed, it expires by itself: %s", lease.partition, why)
        self._on_free()

    async def aclose(self) -> None:
        """Stop renewing leases, and delete the watermark."""
        await self._keeper.aclose()
        if self._ending is not None:
            self._ending.cancel()
        # Otherwise they expire by themselves.
        with contextlib.suppress(StateUnavailable, StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_LAST_CALLS):
                await self._withdraw_want()
                await self._mark.end()

    async def _poll(self) -> float:
        """Acquire and release partitions once. Returns the seconds until the next poll."""
        await self._mark.keep()
        leases: dict[int, Lease | None] = {}
        for partition in range(self._store.partitions):
            if partition not in self._held:
                lease = await self._store.leases.find(partition_key(partition))
                leases[partition] = None if lease is not None and is_beyond_term(lease, LEASE) else lease
        wanted = await self._store.leases.find(_WANTED)
        if wanted is not None and is_beyond_term(wanted, LEASE):
            wanted = None
        if self._is_stopping:
            return 0.0
        # An unknown lease with this name belongs to an earlier holder, and has to expire first.
        holders: dict[int, str | None] = {
            partition: None
            if lease is None
            else f"{lease.owner} (earlier)"
            if lease.owner == self._me
            else lease.owner
            for partition, lease in leases.items()
        }
        holders.update(dict.fromkeys(self._held, self._me))
        division = divide(holders, me=self._me, wanting=None if wanted is None else wanted.owner)
        await self._acquire(division.take)
        # The division repeats those that are already being released.
        going = [
            partition for partition in division.give if partition in self._held and partition not in self._releasing
        ]
        if going:
            _log.info("releasing partitions %s, as other schedulers have less than their share", str(going)[1:-1])
        for partition in going:
            self._releasing.add(partition)
            self._on_give(self._held[partition])
        await (self._announce_want() if division.wants else self._withdraw_want())
        left = [lease.left for lease in leases.values() if lease is not None]
        return max(min([_PERIOD, *left]), _SHORTEST_PERIOD)

    async def _acquire(self, partitions: Sequence[int]) -> None:
        acquired: list[str] = []
        try:
            for partition in partitions:
                until = asyncio.get_running_loop().time() + LEASE
                epoch = await acquire_in_term(
                    self._store.leases, partition_key(partition), owner=self._me, seconds=LEASE
                )
                if not isinstance(epoch, Lease):
                    lease = self._held[partition] = HeldLease(partition, epoch, until)
                    if self._is_stopping:
                        await self.release(lease)
                        break
                    acquired.append(f"{partition} (epoch {epoch})")
                    self._keeper.watch()
                    self._watch_ends()
                    self._on_acquire(lease)
        finally:
            if acquired:
                _log.info("acquired partitions %s", ", ".join(acquired))

    async def _announce_want(self) -> None:
        """Announce that this scheduler has less than its share. Only one scheduler at a time can."""
        leases = self._store.leases
        if self._wanting is not None and await leases.renew(_WANTED, token=self._wanting, seconds=LEASE):
            return
        found = await acquire_in_term(leases, _WANTED, owner=self._me, seconds=LEASE)
        self._wanting = None if isinstance(found, Lease) else found
        if self._wanting is not None:
            # So that schedulers with more partitions poll.
            self._on_free()

    async def _withdraw_want(self) -> None:
        if self._wanting is not None:
            token, self._wanting = self._wanting, None
            await self._store.leases.release(_WANTED, token=token)

    async def _renew(self) -> bool:
        for lease in list(self._held.values()):
            until = asyncio.get_running_loop().time() + LEASE
            try:
                is_held = await self._store.leases.renew(
                    partition_key(lease.partition), token=lease.epoch, seconds=LEASE
                )
            except StoreUnavailable as error:
                raise StateUnavailable(str(error)) from error
            if is_held:
                lease.until = until
                self._answered = asyncio.get_running_loop().time()
            else:
                self._lose(lease)
        self._drop_expired()
        return bool(self._held)

    def _drop_expired(self) -> None:
        """Give up the partitions whose leases have expired without a renewal."""
        now = asyncio.get_running_loop().time()
        for lease in [lease for lease in self._held.values() if lease.until <= now]:
            self._lose(lease)
        self._watch_ends()

    def _watch_ends(self) -> None:
        """Set a timer for the next expiry, which also works while a call to the store hangs."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._held:
            end = min(lease.until for lease in self._held.values())
            self._ending = asyncio.get_running_loop().call_at(end, self._drop_expired)

    def _lose(self, lease: HeldLease) -> None:
        if self._held.get(lease.partition) is lease:
            del self._held[lease.partition]
            self._releasing.discard(lease.partition)
            _log.warning(
                "partition %d is lost: its lease was not renewed in time; stopping its work", lease.partition
            )
            self._on_lose(lease)
            self._waking.set()

    def _report_outage(self, error: Exception) -> None:
        if not self._has_trouble:
            _log.warning("store unavailable: nothing is dispatched, and reports wait: %s", error)
        self._has_trouble = True

    def _report_recovery(self) -> None:
        self._answered = asyncio.get_running_loop().time()
        if self._has_trouble:
            _log.warning("store available again")
        self._has_trouble = False
