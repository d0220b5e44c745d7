"""The leases of slots: one holder at a time, and an epoch that tells the later from the earlier."""

import asyncio

from taskmq.contracts.jobs import slot_key
from taskmq.contracts.stores import Lease, LeaseStore
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.job_store_suite.driver import LONG
from taskmq.testing.runner import case

__all__ = ["SlotLeases"]

_KEYS = (slot_key(0), slot_key(1), "duties")
_TAKERS = 50


class SlotLeases(JobStoreCase):
    """Every guarantee of `DispatchStore.leases`; a lease of 0 seconds has ended."""

    def leases(self) -> LeaseStore:
        return self.store().dispatching.leases

    @case
    async def test_a_slot_is_held_by_one_and_the_others_are_told_by_whom(self) -> None:
        mine, other = self.leases(), self.leases()

        for key in _KEYS:
            token = await mine.acquire(key, owner="a ☂", seconds=LONG, note="of host ☂")
            assert isinstance(token, int)
            for held in (
                await other.acquire(key, owner="b", seconds=LONG),
                await mine.acquire(key, owner="a ☂", seconds=LONG),
                await other.find(key),
            ):
                assert isinstance(held, Lease)
                assert (held.owner, held.token, held.note) == ("a ☂", token, "of host ☂")
                assert LONG - 60 < held.left <= LONG

    @case
    async def test_a_slot_that_nobody_holds_has_no_lease(self) -> None:
        leases = self.leases()

        for key in _KEYS:
            assert await leases.find(key) is None
            assert not await leases.renew(key, token=1, seconds=LONG)
            await leases.release(key, token=1)
            assert await leases.find(key) is None

    @case
    async def test_epochs_only_grow_over_release_and_end(self) -> None:
        stores = [self.leases() for _ in range(2)]

        for key in _KEYS:
            epochs: list[int] = []
            for turn in range(6):
                store, is_short = stores[turn % 2], turn % 3 == 0
                epoch = await store.acquire(key, owner="a", seconds=0 if is_short else LONG)
                assert isinstance(epoch, int)
                epochs.append(epoch)
                if not is_short:
                    await store.release(key, token=epoch)
            assert epochs == sorted(set(epochs))

    @case
    async def test_a_lease_whose_time_is_over_has_ended(self) -> None:
        mine, other = self.leases(), self.leases()

        for key in _KEYS:
            epoch = await mine.acquire(key, owner="a", seconds=0)
            assert isinstance(epoch, int)
            assert await other.find(key) is None
            assert not await mine.renew(key, token=epoch, seconds=LONG)
            assert isinstance(await other.acquire(key, owner="b", seconds=LONG), int)

    @case
    async def test_a_renewal_makes_a_lease_longer_or_shorter_and_may_change_its_note(self) -> None:
        mine, other = self.leases(), self.leases()
        key = slot_key(0)
        epoch = await mine.acquire(key, owner="a", seconds=LONG, note="first")
        assert isinstance(epoch, int)

        notes: list[str] = []
        for note in (None, "second", None, ""):
            assert await mine.renew(key, token=epoch, seconds=2 * LONG, note=note)
            held = await other.find(key)
            assert held is not None
            assert LONG < held.left <= 2 * LONG
            assert held.token == epoch
            notes.append(held.note)

        assert notes == ["first", "second", "second", ""]
        assert await mine.renew(key, token=epoch, seconds=0)
        assert await other.find(key) is None

    @case
    async def test_only_the_holder_renews_and_releases(self) -> None:
        mine, other = self.leases(), self.leases()
        key = slot_key(0)
        old = await other.acquire(key, owner="b", seconds=LONG)
        assert isinstance(old, int)
        await other.release(key, token=old)
        epoch = await mine.acquire(key, owner="a", seconds=LONG)

        assert not await other.renew(key, token=old, seconds=0)
        await other.release(key, token=old)

        held = await other.find(key)
        assert held is not None
        assert (held.owner, held.token) == ("a", epoch)
        assert held.left > LONG - 60

    @case
    async def test_one_of_many_takers_at_the_same_time_gets_the_slot(self) -> None:
        stores = [self.leases() for _ in range(2)]

        for key in _KEYS:
            answers = await asyncio.gather(
                *(stores[number % 2].acquire(key, owner=f"{number}", seconds=LONG) for number in range(_TAKERS))
            )
            (epoch,) = [answer for answer in answers if isinstance(answer, int)]
            assert {answer.token for answer in answers if isinstance(answer, Lease)} == {epoch}

    @case
    async def test_a_lease_outlives_the_closing_of_its_store(self) -> None:
        store, other = self.store(), self.leases()
        epoch = await store.dispatching.leases.acquire(slot_key(0), owner="a", seconds=LONG)

        await store.aclose()

        held = await other.find(slot_key(0))
        assert held is not None
        assert held.token == epoch
