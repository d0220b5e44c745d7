"""The partitions that this scheduler holds, under leases of five seconds.

    look once a second -> divide (pure): take free ones, give back what others are short of
    LeaseKeeper        -> renew all that are held, three times a lease
                          lost, or not renewed in time: its work stops at once, and the store's epochs fence the rest

A store that went back is refused: people have to look at it first (`Watermark`).

While one scheduler lives, no partition is without a holder for longer than a lease. A partition that is given back
is free at once, and the other schedulers are informed.
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

__all__ = ["LEASE", "HeldLease", "PartitionLeases"]

_log = logging.getLogger("taskmq.scheduler")

LEASE: Final = 5.0
_LOOK: Final = 1.0
_SHORTEST_LOOK: Final = 0.05
_WANTED: Final = "partitions:wanted"


class HeldLease:
    """The lease of a partition that this scheduler holds.

    Attributes:
        epoch: its token.
        until: to when it can be trusted, by the loop's clock.
    """

    def __init__(self, partition: int, epoch: int, until: float) -> None:
        self.partition = partition
        self.epoch = epoch
        self.until = until

    def __repr__(self) -> str:
        return f"<HeldLease partition={self.partition} epoch={self.epoch}>"


class PartitionLeases:
    """Holds this scheduler's share of the partitions: a `Service`.

    Args:
        me: names this scheduler among the others.
        taken: called with each partition that is held from now on.
        given: called with each that another scheduler is to have, before it is released: stops its work, and calls
            `release`.
        lost: called with each that another scheduler may hold already.
        freed: called when partitions were released, to announce them to others.
        refused: called when the store went back: nothing is taken there any more.
    """

    def __init__(
        self,
        store: DispatchStore,
        *,
        address: str,
        me: str,
        taken: Callable[[HeldLease], None],
        given: Callable[[HeldLease], None],
        lost: Callable[[HeldLease], None],
        freed: Callable[[], None],
        refused: Callable[[StoreWentBack], None],
    ) -> None:
        self._store = store
        self._me = me
        self._taken = taken
        self._given = given
        self._lost = lost
        self._freed = freed
        self._refused = refused
        self._mark = Watermark(store.leases, address=address, me=me)
        self._held: dict[int, HeldLease] = {}
        # Those that are being given back: held still, until their work has stopped.
        self._going: set[int] = set()
        self._wanting: int | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._keeper = LeaseKeeper("partitions", seconds=LEASE, renew=self._renew)
        self._waking = asyncio.Event()
        self._is_stopping = False
        self._has_trouble = False
        self._answered: float | None = None

    @property
    def held(self) -> list[int]:
        """The partitions that are held."""
        return sorted(self._held)

    @property
    def silence(self) -> float | None:
        """Seconds since the store last answered; None: it never has."""
        return None if self._answered is None else asyncio.get_running_loop().time() - self._answered

    def look(self) -> None:
        """Look at once: something has changed."""
        self._waking.set()

    def stop(self) -> None:
        """Take no more. What is held is held until it is released."""
        self._is_stopping = True
        self._waking.set()

    async def run(self) -> None:
        """Hold the share until `stop`."""
        while not self._is_stopping:
            self._waking.clear()
            wait = _LOOK
            try:
                wait = await self._look()
                self._well()
            except (StateUnavailable, StoreUnavailable) as error:
                self._trouble(error)
            except StoreWentBack as error:
                self._is_stopping = True
                self._refused(error)
            self._drop_expired()
            await pause(self._waking, wait)

    async def release(self, lease: HeldLease) -> None:
        """Give a partition back, so that another scheduler has it at once. Nothing where it was lost."""
        # It may have been taken anew since: that hold is another one's to end.
        if self._held.get(lease.partition) is not lease:
            return
        del self._held[lease.partition]
        self._going.discard(lease.partition)
        try:
            await self._store.leases.release(partition_key(lease.partition), token=lease.epoch)
        except (StateUnavailable, StoreUnavailable) as error:
            _log.warning("partition %d is free when its lease ends: %s", lease.partition, error)
        self._freed()

    async def aclose(self) -> None:
        """Renew nothing any more."""
        await self._keeper.aclose()
        if self._ending is not None:
            self._ending.cancel()
        with contextlib.suppress(StateUnavailable, StoreUnavailable):
            await self._want_no_more()
            await self._mark.end()

    async def _look(self) -> float:
        """One look; seconds until the next one."""
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
        # Of a holder with this name nothing is known here: its lease has to end first.
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
        await self._take(division.take)
        # Those that are on their way already are among them.
        going = [partition for partition in division.give if partition in self._held and partition not in self._going]
        if going:
            _log.info(
                "given back, since other schedulers have less than their share: partitions %s", str(going)[1:-1]
            )
        for partition in going:
            self._going.add(partition)
            self._given(self._held[partition])
        await (self._want() if division.wants else self._want_no_more())
        left = [lease.left for lease in leases.values() if lease is not None]
        return max(min([_LOOK, *left]), _SHORTEST_LOOK)

    async def _take(self, partitions: Sequence[int]) -> None:
        taken: list[str] = []
        try:
            for partition in partitions:
                until = asyncio.get_running_loop().time() + LEASE
                epoch = await acquire_in_term(
                    self._store.leases, partition_key(partition), owner=self._me, seconds=LEASE
                )
                if not isinstance(epoch, Lease):
                    lease = self._held[partition] = HeldLease(partition, epoch, until)
                    taken.append(f"{partition} (epoch {epoch})")
                    self._keeper.watch()
                    self._watch_ends()
                    self._taken(lease)
        finally:
            if taken:
                _log.info("held from now on: partitions %s", ", ".join(taken))

    async def _want(self) -> None:
        """Say that there is less than a share here. One scheduler at a time can."""
        leases = self._store.leases
        if self._wanting is not None and await leases.renew(_WANTED, token=self._wanting, seconds=LEASE):
            return
        found = await acquire_in_term(leases, _WANTED, owner=self._me, seconds=LEASE)
        self._wanting = None if isinstance(found, Lease) else found
        if self._wanting is not None:
            # So that those who have more look.
            self._freed()

    async def _want_no_more(self) -> None:
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
        """A scheduler that could not renew a lease for as long as it lasts does not hold it any more."""
        now = asyncio.get_running_loop().time()
        for lease in [lease for lease in self._held.values() if lease.until <= now]:
            self._lose(lease)
        self._watch_ends()

    def _watch_ends(self) -> None:
        """Drop what expires next as it does, also where the store is asked and does not answer."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._held:
            end = min(lease.until for lease in self._held.values())
            self._ending = asyncio.get_running_loop().call_at(end, self._drop_expired)

    def _lose(self, lease: HeldLease) -> None:
        if self._held.get(lease.partition) is lease:
            del self._held[lease.partition]
            self._going.discard(lease.partition)
            _log.warning(
                "partition %d is lost: its lease was not renewed in time; its work stops here", lease.partition
            )
            self._lost(lease)
            self._waking.set()

    def _trouble(self, error: Exception) -> None:
        if not self._has_trouble:
            _log.warning("the store does not answer: nothing is dispatched, and reports wait: %s", error)
        self._has_trouble = True

    def _well(self) -> None:
        self._answered = asyncio.get_running_loop().time()
        if self._has_trouble:
            _log.warning("the store answers again")
        self._has_trouble = False
